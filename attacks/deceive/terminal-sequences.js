// tries: sends control sequences to the terminal of the person who reads its output or its error
// seen-in: CVE-2019-8325 RubyGems
// walls: terminal
// expect: runtime_error
const bad = '\x1b]0;owned\x07\x1b[2J\x1b[31m\x9b31m\x1bP$q\x1b\\\x1b]52;c;cm0gLXJm\x07\x08\x7f\u202e\r';
process.stdout.write(bad);
process.stderr.write(bad + '\n');
throw new Error(bad);
