// Prints Lighthouse's scores of each URL of its arguments, with the audits that cost something, as one line of JSON each.
// CHROME_PATH names the browser. package.json overrides third-party-web: a dependency asks for its latest version, which a
// lock file cannot hold.
import { launch } from 'chrome-launcher';
import lighthouse from 'lighthouse';

const chrome = await launch({ chromeFlags: ['--headless=new', '--no-sandbox', '--disable-gpu', '--disable-dev-shm-usage'] });
try {
  for (const url of process.argv.slice(2)) {
    const result = await lighthouse(url, {
      port: chrome.port,
      logLevel: 'silent',
      onlyCategories: ['accessibility', 'best-practices'],
    });
    const scores = {};
    const failed = [];
    for (const category of Object.values(result.lhr.categories)) {
      scores[category.id] = category.score;
      for (const { id, weight } of category.auditRefs) {
        const { score } = result.lhr.audits[id];
        if (weight > 0 && score !== null && score < 1) failed.push(id);
      }
    }
    console.log(JSON.stringify({ url, scores, failed }));
  }
} finally {
  chrome.kill();
}
