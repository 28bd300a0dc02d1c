/** Points of all clouds together that a processor draws ten times a second, while it does everything else. */
const SOFTWARE_POINTS = 100_000;
/** The fewest that a cloud is still one with. */
const FEWEST = 5_000;
/** Messages that come too late within this time, in milliseconds, are one sign of too much. */
const PATIENCE = 1000;

/**
 * How many points a cloud may have while it is played. Where the processor stands in for a graphics card they are fewer, and
 * fewer again when messages give way before they are painted; what stands still is shown whole. What is left out is said.
 */
export class Load {
  isPlaying = false;
  /** The most points of a cloud; without it, all of them. */
  most?: number;
  private share = 1;
  private lateAt = -Infinity;
  private count = 0;

  constructor(
    private isSoftware: boolean,
    private clouds: () => number,
    private changed: () => void,
  ) {}

  /** A cloud gave way to the next before it was painted. */
  late(): void {
    const now = performance.now();
    this.count = now - this.lateAt < PATIENCE ? this.count + 1 : 1;
    this.lateAt = now;
    // Once can be by chance: the screen's beat is not the recording's.
    if (this.count < 2 || !this.isSoftware || !this.isPlaying) return;
    this.count = 0;
    this.share /= 2;
    this.balance();
  }

  /** Works out anew how many there may be. */
  balance(): void {
    const each = (SOFTWARE_POINTS * this.share) / Math.max(this.clouds(), 1);
    const most = this.isSoftware && this.isPlaying ? Math.max(Math.round(each), FEWEST) : undefined;
    if (most === this.most) return void this.changed();
    this.most = most;
    this.changed();
  }
}
