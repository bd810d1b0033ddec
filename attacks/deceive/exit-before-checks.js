// tries: exits successfully before anything was checked
// seen-in: SandboxFusion
// walls: template
// template: yes
// expect: runtime_error
function f(x) { process.exit(0); }
