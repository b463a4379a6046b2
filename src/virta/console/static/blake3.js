// BLAKE3 of at most 1024 bytes (one chunk): enough for the hash that links a block to the one before.

const IV = [0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19];
const ORDER = [2, 6, 3, 10, 7, 0, 4, 13, 1, 11, 12, 5, 9, 14, 15, 8];
const CHUNK_START = 1, CHUNK_END = 2, ROOT = 8;

const turn = (value, by) => ((value >>> by) | (value << (32 - by))) >>> 0;

function mix(state, a, b, c, d, x, y) {
  state[a] = (state[a] + state[b] + x) >>> 0;
  state[d] = turn(state[d] ^ state[a], 16);
  state[c] = (state[c] + state[d]) >>> 0;
  state[b] = turn(state[b] ^ state[c], 12);
  state[a] = (state[a] + state[b] + y) >>> 0;
  state[d] = turn(state[d] ^ state[a], 8);
  state[c] = (state[c] + state[d]) >>> 0;
  state[b] = turn(state[b] ^ state[c], 7);
}

function compress(chaining, words, length, flags) {
  const state = [...chaining, IV[0], IV[1], IV[2], IV[3], 0, 0, length, flags];
  let message = words;
  for (let round = 0; round < 7; round++) {
    mix(state, 0, 4, 8, 12, message[0], message[1]);
    mix(state, 1, 5, 9, 13, message[2], message[3]);
    mix(state, 2, 6, 10, 14, message[4], message[5]);
    mix(state, 3, 7, 11, 15, message[6], message[7]);
    mix(state, 0, 5, 10, 15, message[8], message[9]);
    mix(state, 1, 6, 11, 12, message[10], message[11]);
    mix(state, 2, 7, 8, 13, message[12], message[13]);
    mix(state, 3, 4, 9, 14, message[14], message[15]);
    const before = message;
    message = ORDER.map((at) => before[at]);
  }
  return chaining.map((_, at) => (state[at] ^ state[at + 8]) >>> 0);
}

/** The hash of some bytes, as hexadecimal digits. */
export function blake3(bytes) {
  if (bytes.length > 1024) throw new RangeError("more than one chunk");
  let chaining = IV;
  const blocks = Math.max(1, Math.ceil(bytes.length / 64));
  for (let block = 0; block < blocks; block++) {
    const part = new Uint8Array(64);
    const piece = bytes.subarray(block * 64, block * 64 + 64);
    part.set(piece);
    const words = [...new Uint32Array(part.buffer)]; // every browser's machine has the lowest byte first
    const flags = (block === 0 ? CHUNK_START : 0) | (block === blocks - 1 ? CHUNK_END | ROOT : 0);
    chaining = compress(chaining, words, piece.length, flags);
  }
  const out = new Uint8Array(new Uint32Array(chaining).buffer);
  return [...out].map((each) => each.toString(16).padStart(2, "0")).join("");
}

export const fromHex = (digits) => Uint8Array.from(digits.match(/../g) || [], (pair) => parseInt(pair, 16));
