// One life of a game, spoken by the official client. It prints a line for each thing that has happened; at "pause" it
// keeps its streams open until it is told a line on standard input.

const readline = require('node:readline');
const AgonesSDK = require('@google-cloud/agones-sdk');

const told = readline.createInterface({ input: process.stdin })[Symbol.asyncIterator]();
const fail = (what) => (error) => {
  console.log(`failed ${what}: ${error}`);
  process.exit(1);
};

async function live() {
  const sdk = new AgonesSDK();
  await sdk.connect();
  console.log('connected');
  sdk.health(fail('health'));
  let last;
  sdk.watchGameServer((shown) => {
    // The client sends no event of its own: a repeated state is the same news.
    if (shown.status.state !== last) {
      last = shown.status.state;
      console.log(`watched ${last}`);
    }
  }, fail('watch'));
  await sdk.ready();
  await sdk.setLabel('mode', 'duel');
  await sdk.setAnnotation('map', 'harbour, north');
  const shown = await sdk.getGameServer();
  console.log(`got ${shown.objectMeta.name} ${shown.status.portsList[0].port}`);
  console.log('pause');
  await told.next();
  sdk.health(fail('health'));
  await sdk.reserve(600);
  await sdk.allocate();
  await sdk.setLabel('bad key', 'x').then(() => console.log('took a bad key'), (error) => console.log(`refused ${error.code}`));
  await sdk.shutdown();
  console.log('done');
  sdk.close();
  process.exit(0);
}

live().catch(fail('a call'));
