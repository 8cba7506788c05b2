# hlod in a container: daemon, worker (with LLVM and oneDNN) and hlo, and the libraries these need; nothing else. PJRT plugins are never inside: mount them.
#   podman build -t hlod .          any Debian 12 as --build-arg BASE=
# It listens on all addresses, so it starts only with tokens (-e HLOD_TOKENS=FILE) or with -e HLOD_INSECURE_ALLOW_ANONYMOUS=true. docs/operations.md tells more.
ARG BASE=debian:bookworm-slim
FROM ${BASE} AS build
WORKDIR /src
# The packages first: they change seldom.
COPY deploy/setup.sh deploy/setup.sh
RUN sh deploy/setup.sh build
COPY . .
ARG JOBS=2
RUN make -j"$JOBS" LLVM_STATIC=1 all && make LLVM_STATIC=1 install DESTDIR=/out PREFIX=/usr && sh deploy/closure.sh /out

FROM scratch
COPY --from=build /out/ /
USER 65532:65532
VOLUME /var/lib/hlod
EXPOSE 8000 8001
ENV HLOD_DATA=/var/lib/hlod HLOD_HTTP=0.0.0.0:8000 HLOD_GRPC=0.0.0.0:8001
# For engines that look (OCI images have no such field); asks without a token.
HEALTHCHECK --interval=10s --start-period=30s CMD ["/usr/bin/hlo", "health"]
ENTRYPOINT ["/usr/bin/hlod"]
