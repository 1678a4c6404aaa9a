// Asks an API server who the caller is, by @kubernetes/client-node, and prints the answer as JSON.
//
//   main.mjs kubeconfig FILE      as the kubeconfig says
//   main.mjs directory DIR        by the files of a token directory, the token by the package's own tokenFile provider
//
// For each line of standard input it does so once more, with the same client.
import readline from 'node:readline';
import { AuthenticationV1Api, KubeConfig } from '@kubernetes/client-node';

const [mode, path] = process.argv.slice(2);
const config = new KubeConfig();
config.loadFromFile(mode === 'directory' ? `${path}/kubeconfig` : path);
if (mode === 'directory') {
  const { server, name } = config.getCurrentCluster();
  config.loadFromOptions({
    clusters: [{ name, server, caFile: `${path}/ca.crt` }],
    users: [{ name: 'agent', authProvider: { name: 'tokenFile', config: { tokenFile: `${path}/token` } } }],
    contexts: [{ name: 'agent', cluster: name, user: 'agent' }],
    currentContext: 'agent',
  });
}
const api = config.makeApiClient(AuthenticationV1Api);

async function whoami() {
  const body = { apiVersion: 'authentication.k8s.io/v1', kind: 'SelfSubjectReview' };
  const { status } = await api.createSelfSubjectReview({ body });
  console.log(JSON.stringify({ username: status.userInfo.username, extra: status.userInfo.extra }));
}

try {
  await whoami();
  for await (const _ of readline.createInterface({ input: process.stdin })) {
    await whoami();
  }
} catch (error) {
  console.error(`error: ${error.code ?? ''} ${String(error.message).split('\n')[0]}`);
  process.exit(1);
}
