// Versions of a conversation: a retry or an edit keeps what was there before, as another version from that message on.
//
// The first message of the version that is shown carries the others: `versions.others` has the messages of each, and nothing in
// the place of the one that is shown.

/** Puts the messages from `at` on aside. Whoever adds the next message gives it what this returns as its `versions`. */
export function fork(messages, at) {
  const aside = messages.splice(at);
  if (aside.length === 0) return undefined;
  const versions = detach(aside);
  versions.others[versions.shown] = aside;
  versions.shown = versions.others.push(null) - 1;
  return versions;
}

/** Shows another version of the messages from `at` on. */
export function choose(messages, at, version) {
  const aside = messages.splice(at);
  const versions = detach(aside);
  versions.others[versions.shown] = aside;
  messages.push(...versions.others[version]);
  Object.assign(versions, { shown: version, others: versions.others.with(version, null) });
  messages[at].versions = versions;
}

/** Whether stored versions have the right shape; `isMessage` says it of a message. */
export function areVersions(versions, isMessage) {
  if (versions === undefined) return true;
  const { shown, others } = versions ?? {};
  const isOther = (other, at) =>
    at === shown ? other === null : Array.isArray(other) && other.length > 0 && other.every(isMessage);
  return Array.isArray(others) && shown >= 0 && shown < others.length && others.every(isOther);
}

function detach([first]) {
  const { versions = { shown: 0, others: [null] } } = first;
  delete first.versions;
  return versions;
}
