// SPDX-License-Identifier: Apache-2.0
// What every part of the runtime throws.

/** Something is wrong with a model's files, an input, or what the browser can do. */
export class HlodError extends Error {
  constructor(message) {
    super(message);
    this.name = "HlodError";
  }
}

export function refuse(message) {
  throw new HlodError(message);
}
