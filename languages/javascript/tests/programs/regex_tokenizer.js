// Regular expressions: a sticky tokenizer feeding a recursive-descent calculator, named groups.
'use strict';

const TOKEN = /\s*(?:(?<number>\d+(?:\.\d+)?)|(?<name>[a-z]\w*)|(?<operator>\*\*|[-+*/()=]))/y;

function* tokenize(source) {
  TOKEN.lastIndex = 0;
  while (TOKEN.lastIndex < source.trimEnd().length) {
    const at = TOKEN.lastIndex;
    const match = TOKEN.exec(source);
    if (!match) throw new SyntaxError(`unexpected '${source.slice(at).trim()[0]}'`);
    const [type, text] = Object.entries(match.groups).find(([, value]) => value !== undefined);
    yield { type, text };
  }
}

function evaluate(source, variables) {
  const tokens = [...tokenize(source)];
  const accept = (...texts) => (texts.includes(tokens[0]?.text) ? tokens.shift().text : null);

  function primary() {
    if (accept('(')) {
      const value = sum();
      if (!accept(')')) throw new SyntaxError("expected ')'");
      return value;
    }
    if (accept('-')) return -power();
    const token = tokens.shift();
    if (token?.type === 'number') return Number(token.text);
    if (token?.type === 'name' && token.text in variables) return variables[token.text];
    throw new SyntaxError(`unexpected ${token ? `'${token.text}'` : 'end'}`);
  }
  function power() {
    const base = primary();
    return accept('**') ? base ** power() : base;
  }
  function leftAssociative(operand, operators) {
    let value = operand();
    for (let op; (op = accept(...Object.keys(operators))); ) value = operators[op](value, operand());
    return value;
  }
  const product = () => leftAssociative(power, { '*': (a, b) => a * b, '/': (a, b) => a / b });
  const sum = () => leftAssociative(product, { '+': (a, b) => a + b, '-': (a, b) => a - b });

  if (tokens[1]?.text === '=') {
    const [{ text }] = tokens.splice(0, 2);
    return (variables[text] = sum());
  }
  const value = sum();
  if (tokens.length) throw new SyntaxError(`unexpected '${tokens[0].text}'`);
  return value;
}

const variables = {};
for (const line of ['1 + 2 * 3', '(1 + 2) * 3', '2 ** 3 ** 2', '10 - 4 - 3', 'x = 7 / 2', '-x * 4', '2 $ 3', '(1 + 2', 'y']) {
  try {
    console.log(`${line} => ${evaluate(line, variables)}`);
  } catch (error) {
    console.log(`${line} => ${error.message}`);
  }
}
console.log('2024-02-29'.replace(/(?<y>\d+)-(?<m>\d+)-(?<d>\d+)/, '$<d>.$<m>.$<y>'));
console.log([...'a1b22c333'.matchAll(/([a-z])(\d+)/g)].map(([, letter, n]) => letter.repeat(n.length)));
console.log('price: $42, cost: $7'.match(/(?<=\$)\d+/g), /\p{Lu}\p{Ll}+/u.test('Émile'));
