// Enums, abstract classes, accessors, static members, overloads, private fields.
enum Level {
  Debug,
  Info = 10,
  Warning,
}

enum Colour {
  Red = "red",
  Green = "green",
}

const enum Flag {
  Read = 1 << 0,
  Write = 1 << 1,
  All = Read | Write,
}

abstract class Shape {
  static #count = 0;

  constructor(public readonly colour: Colour) {
    Shape.#count++;
  }

  abstract get area(): number;

  describe(): string {
    return `${this.colour} ${this.constructor.name.toLowerCase()} of ${this.area.toFixed(2)}`;
  }

  static get count(): number {
    return Shape.#count;
  }
}

class Circle extends Shape {
  constructor(colour: Colour, private radius: number) {
    super(colour);
  }

  override get area(): number {
    return Math.PI * this.radius ** 2;
  }
}

class Rect extends Shape {
  constructor(colour: Colour, private sides: [width: number, height: number]) {
    super(colour);
  }

  override get area(): number {
    return this.sides[0] * this.sides[1];
  }

  override describe(): string {
    return `${super.describe()}${this.sides[0] === this.sides[1] ? ", square" : ""}`;
  }
}

function double(value: number): number;
function double(value: string): string;
function double(value: number | string): number | string {
  return typeof value === "number" ? value * 2 : value + value;
}

console.log(Level.Warning, Level[10], Object.values(Colour).join(), Flag.All & ~Flag.Read);
const shapes: Shape[] = [new Circle(Colour.Red, 2), new Rect(Colour.Green, [3, 4]), new Rect(Colour.Red, [5, 5])];
for (const shape of shapes) console.log(shape.describe());
console.log("shapes:", Shape.count, "red:", shapes.filter((shape) => shape.colour === Colour.Red).length);
console.log(double(21), double("ab"));
