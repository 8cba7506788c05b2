// SPDX-License-Identifier: Apache-2.0
// One connection of a page: the WebSocket, and a dedicated worker inside in which kernels run, so
// that the page can end them where the server gives up a run.
import { DONE, HELLO, RESET, VERSION, headOf, message, words } from "./tab.js";

const INSIDE = new URL("./inside.js", import.meta.url);

/** tell(event): {what: "open" | "load" | "run" | "reset" | "close", ms, backend, error}. */
export class Link {
  #socket;
  #inside = null;
  constructor(url, protocols, backend, tell) {
    this.backend = backend;
    this.tell = tell;
    this.#socket = new WebSocket(url, protocols);
    this.#socket.binaryType = "arraybuffer";
    this.#socket.onopen = () => this.#open();
    this.#socket.onmessage = ({ data }) => this.#take(data);
    this.#socket.onclose = () => {
      this.#end();
      tell({ what: "close" });
    };
  }
  close() {
    this.#end(); // what runs would keep the page, and with it the connection
    this.#socket.close();
  }

  #open() {
    this.#begin();
    this.#socket.send(words(HELLO, VERSION, `${this.backend}, ${navigator.userAgent}`));
    this.tell({ what: "open" });
  }
  #take(data) {
    const [type, number] = headOf(new Uint8Array(data));
    if (type !== RESET) return this.#inside?.postMessage(data, [data]);
    this.#end();
    this.#begin();
    this.#socket.send(message(DONE, number));
    this.tell({ what: "reset" });
  }
  #begin() {
    const own = this.#inside = new Worker(INSIDE, { type: "module" });
    const fail = (error) => {
      if (own !== this.#inside) return;
      this.tell({ what: "worker", error });
      this.close();
    };
    own.onmessage = ({ data }) => {
      if (own !== this.#inside) return; // it was ended after it had said this
      if (data.answer) this.#socket.send(data.answer);
      if (data.event) this.tell(data.event);
      if (data.broken) fail(data.broken);
    };
    own.onerror = (e) => fail(e.message || "the worker of the page failed");
    own.postMessage({ backend: this.backend });
  }
  #end() {
    this.#inside?.terminate();
    this.#inside = null;
  }
}
