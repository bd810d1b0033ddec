// tries: finds a route to metadata services, bridges and the internet, without sending anything
// seen-in: CVE-2024-29021 Judge0
// walls: net
const dgram = require('dgram');
// Connecting a datagram socket only asks the kernel for a route.
const targets = ['169.254.169.254', '172.17.0.1', '10.0.0.1', '192.0.2.1', '100.100.100.200'];
process.on('exit', (code) => { if (code !== 99) console.log('attempted'); });
for (const target of targets) {
  const socket = dgram.createSocket('udp4');
  socket.on('error', () => { });
  socket.connect(80, target, (refused) => {
    if (!refused) { console.log('there is a route to', target); process.exit(99); }
    socket.close();
  });
}
