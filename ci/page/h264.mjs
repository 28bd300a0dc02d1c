// A minimal H.264 encoder for tests: small pictures with uncompressed blocks. The first packet has all blocks (a key frame);
// each later one has one changed block and marks all others as skipped.

/** Packets in Annex B of a film of 64 by 64 pixels. It is blue at first; block after block becomes red. */
export function film(count, every = count) {
  const packets = [];
  for (let at = 0; at < count; at++) packets.push(at % every === 0 ? key(at) : later(at, at % every));
  return packets;
}

const SIDE = 4;
const BLOCKS = SIDE * SIDE;
const BLUE = [41, 240, 110];
const RED = [82, 90, 240];

class Bits {
  bytes = [];
  count = 0;
  bit(value) {
    if (this.count % 8 === 0) this.bytes.push(0);
    if (value) this.bytes[this.bytes.length - 1] |= 0x80 >> this.count % 8;
    this.count++;
  }
  u(width, value) {
    for (let at = width - 1; at >= 0; at--) this.bit((value >> at) & 1);
    return this;
  }
  /** A number in Exp-Golomb code. */
  ue(value) {
    const width = Math.floor(Math.log2(value + 1));
    return this.u(width, 0).u(width + 1, value + 1);
  }
  block([y, u, v]) {
    while (this.count % 8 !== 0) this.bit(0);
    this.bytes.push(...Array(256).fill(y), ...Array(64).fill(u), ...Array(64).fill(v));
    this.count = this.bytes.length * 8;
  }
  /** The unit, closed, with a start code, and without one within. */
  unit(head) {
    this.bit(1);
    const out = [0, 0, 0, 1, head];
    let zeros = 0;
    for (const byte of this.bytes) {
      if (zeros >= 2 && byte <= 3) {
        out.push(3);
        zeros = 0;
      }
      out.push(byte);
      zeros = byte === 0 ? zeros + 1 : 0;
    }
    return Buffer.from(out);
  }
}

const parameters = () => [
  new Bits().u(8, 66).u(8, 0xc0).u(8, 20).ue(0).ue(0).ue(2).ue(1).u(1, 0).ue(SIDE - 1).ue(SIDE - 1).u(1, 1).u(1, 1).u(1, 0).u(1, 0).unit(0x67),
  new Bits().ue(0).ue(0).u(1, 0).u(1, 0).ue(0).ue(0).ue(0).u(1, 0).u(2, 0).ue(0).ue(0).ue(0).u(1, 0).u(1, 0).u(1, 0).unit(0x68),
];

function key(at) {
  const slice = new Bits().ue(0).ue(7).ue(0).u(4, 0).ue(at % 2).u(1, 0).u(1, 0).ue(0);
  for (let block = 0; block < BLOCKS; block++) {
    slice.ue(25);
    slice.block(BLUE);
  }
  return Buffer.concat([...parameters(), slice.unit(0x65)]);
}

function later(_at, number) {
  const block = (number - 1) % BLOCKS;
  const slice = new Bits().ue(0).ue(5).ue(0).u(4, number % 16).u(1, 0).u(1, 0).u(1, 0).ue(0).ue(block).ue(30);
  slice.block(RED);
  if (block + 1 < BLOCKS) slice.ue(BLOCKS - block - 1);
  return slice.unit(0x41);
}
