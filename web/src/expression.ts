/** A formula over named values. */
export interface Expression {
  /** The names of its variables. */
  names: string[];
  of: (values: Record<string, number>) => number;
}

type Part = (values: Record<string, number>) => number;

const FUNCTIONS: Record<string, (...values: number[]) => number> = {
  abs: Math.abs, acos: Math.acos, asin: Math.asin, atan: Math.atan, atan2: Math.atan2, cos: Math.cos, exp: Math.exp,
  floor: Math.floor, hypot: Math.hypot, log: Math.log, max: Math.max, min: Math.min, round: Math.round, sign: Math.sign,
  sin: Math.sin, sqrt: Math.sqrt, tan: Math.tan,
  deg: (radians) => (radians * 180) / Math.PI,
  rad: (degrees) => (degrees * Math.PI) / 180,
};
const CONSTANTS: Record<string, number> = { pi: Math.PI, e: Math.E };

/** Parses `sqrt(a^2 + b^2)`. Throws an error with the position of what is not understood. */
export function parse(text: string): Expression {
  return new Parser(text).whole();
}

/** Operators by increasing precedence. */
class Parser {
  private tokens: { text: string; at: number }[];
  private next = 0;
  private names = new Set<string>();

  constructor(private text: string) {
    if (text.length > 500) throw new Error("a formula can have at most 500 characters");
    this.tokens = [...text.matchAll(/\s*(\d+\.?\d*(?:e[+-]?\d+)?|\.\d+|[A-Za-z_]\w*|\S)/gi)].map((found) => ({ text: found[1], at: found.index }));
  }

  whole(): Expression {
    const of = this.sum();
    const rest = this.tokens[this.next];
    if (rest) throw new Error(`'${rest.text}' is unexpected at ${rest.at + 1}`);
    return { names: [...this.names], of };
  }

  private take(...expected: string[]): string | undefined {
    const token = this.tokens[this.next]?.text;
    if (token === undefined || !expected.includes(token)) return undefined;
    this.next++;
    return token;
  }

  private sum(): Part {
    let left = this.product();
    for (let sign = this.take("+", "-"); sign; sign = this.take("+", "-")) {
      const [before, after, isPlus] = [left, this.product(), sign === "+"];
      left = (values) => (isPlus ? before(values) + after(values) : before(values) - after(values));
    }
    return left;
  }

  private product(): Part {
    let left = this.signed();
    for (let sign = this.take("*", "/", "%"); sign; sign = this.take("*", "/", "%")) {
      const [before, after, own] = [left, this.signed(), sign];
      left = (values) => (own === "*" ? before(values) * after(values) : own === "/" ? before(values) / after(values) : before(values) % after(values));
    }
    return left;
  }

  private signed(): Part {
    if (this.take("-")) {
      const part = this.signed();
      return (values) => -part(values);
    }
    return this.power();
  }

  private power(): Part {
    const base = this.single();
    if (!this.take("^")) return base;
    const exponent = this.signed();
    return (values) => base(values) ** exponent(values);
  }

  private single(): Part {
    const token = this.tokens[this.next++];
    if (!token) throw new Error(`'${this.text}' ends too early`);
    if (token.text === "(") return this.closed(this.sum());
    if (/^[\d.]/.test(token.text) && token.text !== ".") {
      const value = Number(token.text);
      return () => value;
    }
    if (!/^[A-Za-z_]/.test(token.text)) throw new Error(`'${token.text}' is unexpected at ${token.at + 1}`);
    if (this.take("(")) return this.call(token.text);
    if (token.text in CONSTANTS && !/^[a-z]$/.test(token.text)) return () => CONSTANTS[token.text];
    this.names.add(token.text);
    return (values) => values[token.text] ?? NaN;
  }

  private closed(part: Part): Part {
    if (!this.take(")")) throw new Error("a parenthesis is not closed");
    return part;
  }

  private call(name: string): Part {
    const own = Object.hasOwn(FUNCTIONS, name) ? FUNCTIONS[name] : undefined;
    if (!own) throw new Error(`there is no function ${name}; there are ${Object.keys(FUNCTIONS).join(", ")}`);
    const parts = [this.sum()];
    while (this.take(",")) parts.push(this.sum());
    return this.closed((values) => own(...parts.map((part) => part(values))));
  }
}
