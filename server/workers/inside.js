// SPDX-License-Identifier: Apache-2.0
// The page's dedicated worker: kernels run here, so that the page can end them. The first message
// has the options, the others are the server's.
import { Tab } from "./tab.js";

let tab = null;
self.onmessage = ({ data }) => {
  if (tab) {
    tab.take(new Uint8Array(data)).catch((e) => self.postMessage({ broken: String(e.message ?? e) }));
    return;
  }
  const send = (bytes) => self.postMessage({ answer: bytes.buffer }, [bytes.buffer]);
  tab = new Tab(send, data, (event) => self.postMessage({ event }));
};
