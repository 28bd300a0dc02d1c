import { packetsOf, type Packet } from "./packets";
import type { Shown } from "./types";

interface Packets {
  anew: boolean;
  codec: string | null;
  name: string | null;
  packets: Packet[];
}

/** Beyond this gap after the last decoded picture, in nanoseconds, decoding restarts at a keyframe. */
const FAR = 20e9;

/**
 * The video of one topic. A picture needs all packets since its keyframe: they are fetched for the current time,
 * except for those that were decoded already.
 */
export class Video {
  private decoder?: VideoDecoder;
  /** The time of the last packet that was decoded. */
  private fed?: number;
  private failure?: Error;
  private latest?: VideoFrame;
  private painted?: number;

  constructor(
    private topic: string,
    private paint: (frame: VideoFrame, t: number) => void,
  ) {}

  /** Shows the picture as of a message. */
  async show(shown: Shown, isPlaying: boolean): Promise<void> {
    if (!("VideoDecoder" in window))
      throw new Error(isSecureContext ? "This browser does not have WebCodecs, which are needed to decode video; Chrome, Edge, Safari and Firefox from 130 on have it." : "Browsers decode video only on https and localhost: open this page on the robot itself, or through a tunnel or a proxy with TLS.");
    if (this.painted === shown.t) return;
    const goesOn = this.decoder?.state === "configured" && this.fed !== undefined && shown.t >= this.fed && shown.t - this.fed < FAR;
    if (!goesOn) return this.decode(shown, isPlaying, false);
    // A browser may reclaim a decoder: start again with another.
    return this.decode(shown, isPlaying, true).catch(() => this.decode(shown, isPlaying, false));
  }

  /** Decodes the packets for a message: those since the last one, or all since the keyframe. */
  private async decode(shown: Shown, isPlaying: boolean, goesOn: boolean): Promise<void> {
    if (!goesOn) this.reset();
    const after: Record<string, string> = goesOn && this.fed !== undefined ? { after: String(this.fed) } : {};
    const { head, body } = await packetsOf<Packets>("video", { topic: this.topic, t: String(shown.t), ...after });
    if (head.packets.length === 0) return;
    if (head.anew) await this.start(head);
    this.failure = undefined;
    for (const packet of head.packets) {
      const isKey = head.anew && packet === head.packets[0];
      const data = new Uint8Array(body.buffer, body.byteOffset + packet.at, packet.size);
      this.decoder?.decode(new EncodedVideoChunk({ type: isKey ? "key" : "delta", timestamp: packet.t / 1000, data }));
      this.fed = packet.t;
    }
    await this.settle(head.packets[head.packets.length - 1].t, isPlaying);
  }

  dispose(): void {
    this.reset();
  }

  private reset(): void {
    if (this.decoder && this.decoder.state !== "closed") this.decoder.close();
    this.decoder = undefined;
    this.fed = undefined;
    this.latest?.close();
    this.latest = undefined;
  }

  private async start(head: Packets): Promise<void> {
    this.reset();
    const config: VideoDecoderConfig = { codec: head.codec ?? "", optimizeForLatency: true };
    const { supported } = await VideoDecoder.isConfigSupported(config).catch(() => ({ supported: false }));
    if (!supported) throw new Error(`This browser cannot decode ${head.name ?? "this video"} (${head.codec ?? "no parameters"}). Another browser may, or one with a graphics card; \`asof export --format video\` writes it for a player.`);
    this.decoder = new VideoDecoder({
      output: (frame) => {
        this.latest?.close();
        this.latest = frame;
      },
      error: (error) => (this.failure = error),
    });
    this.decoder.configure(config);
  }

  /** Waits for the decoder's output, and paints it. */
  private async settle(t: number, isPlaying: boolean): Promise<void> {
    const { decoder } = this;
    if (!decoder) return;
    const isOut = () => this.latest !== undefined && this.latest.timestamp >= Math.floor(t / 1000) - 1;
    for (let wait = 0; wait < 60 && !isOut() && !this.failure; wait++) {
      if (decoder.decodeQueueSize === 0 && wait > 4) break;
      await new Promise((resolve) => setTimeout(resolve, 8));
    }
    // The decoder delays pictures to reorder them. During playback they come with the next packets; while paused it is
    // flushed, and the next picture starts at a keyframe.
    if (!isOut() && !this.failure && !(isPlaying && this.latest) && decoder.state === "configured") {
      await decoder.flush().catch((error: Error) => (this.failure = error));
      this.fed = undefined;
    }
    if (this.failure) {
      this.reset();
      throw new Error(`This video cannot be decoded: ${this.failure.message}`);
    }
    if (!this.latest) return;
    this.paint(this.latest, t);
    this.painted = isOut() ? t : undefined;
  }
}
