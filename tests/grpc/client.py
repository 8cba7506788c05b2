# SPDX-License-Identifier: Apache-2.0
"""Stubs for grpcio from the descriptors the build embeds for reflection: no generated code. Needs
grpcio and protobuf."""
import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

OPTIONS = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1),
           ("grpc.use_local_subchannel_pool", 1)]
ANY = object()
# The library goes with its last channel, under threads that may still write (client/python,
# _grpc.py): here one scenario's channel ends before the next one's begins.
KEEPS_THE_LIBRARY = grpc.insecure_channel("127.0.0.1:1")

def refused(code, fn, reason=ANY):
    """fn, a call or a stream, fails with this code and this reason of ours (None: without one).
    Gives the error."""
    try:
        r = fn()
        if not hasattr(r, "DESCRIPTOR"):
            list(r)
    except grpc.RpcError as e:
        got = dict(e.trailing_metadata() or ()).get("hlod-reason")
        assert e.code() == code and (reason is ANY or got == reason), (e.code(), got, e.details())
        return e
    raise AssertionError(f"not refused with {code}")

class Api:
    def __init__(self, build):
        files = descriptor_pb2.FileDescriptorSet.FromString(
            open(build + "/gen/server/api_descriptors.bin", "rb").read())
        self.pool = descriptor_pool.DescriptorPool()
        for f in files.file:
            self.pool.Add(f)
        self.streams = {}
        for f in files.file:
            for s in f.service:
                for m in s.method:
                    self.streams[f"/{f.package}.{s.name}/{m.name}"] = (
                        m.client_streaming, m.server_streaming, m.input_type[1:], m.output_type[1:])

    def type(self, name):
        return message_factory.GetMessageClass(self.pool.FindMessageTypeByName(name))

    def method(self, channel, path):
        """(callable, request class)"""
        up, down, q, r = self.streams[path]
        make = getattr(channel,
                       ("stream" if up else "unary") + "_" + ("stream" if down else "unary"))
        request = self.type(q)
        return make(path, request_serializer=request.SerializeToString,
                    response_deserializer=self.type(r).FromString), request

class Hlod:
    """hlod.v1.Hlod: hlod.Run(model=..., ...) and hlod.Run.call(message, timeout=...)."""
    def __init__(self, api, channel):
        self.api, self.channel = api, channel

    def __getattr__(self, name):
        fn, request = self.api.method(self.channel, "/hlod.v1.Hlod/" + name)
        def call(timeout=60, metadata=None, **fields):
            return fn(request(**fields), timeout=timeout, metadata=metadata)
        call.raw, call.request = fn, request
        setattr(self, name, call)
        return call
