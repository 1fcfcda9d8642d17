/** Figures as people read them. */

/** @param {number} bytes Decimal units, as download managers and Hugging Face show them. */
export function formatBytes(bytes) {
  if (bytes >= 1e9) return `${(bytes / 1e9).toFixed(2)} GB`;
  if (bytes >= 1e6) return `${(bytes / 1e6).toFixed(1)} MB`;
  return `${Math.round(bytes / 1e3)} kB`;
}

/** @param {number} seconds */
export function formatDuration(seconds) {
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  if (seconds < 90) return `${Math.round(seconds)} s`;
  return `${Math.round(seconds / 60)} min`;
}

/** @param {number} count */
export function formatCount(count) {
  if (count >= 1e9) return `${(count / 1e9).toFixed(1)} billion`;
  if (count >= 1e6) return `${Math.round(count / 1e6)} million`;
  return count.toLocaleString("en");
}

/** @param {number} tokensPerSecond */
export function formatRate(tokensPerSecond) {
  return `${tokensPerSecond.toFixed(tokensPerSecond < 10 ? 2 : 1)} tokens/s`;
}

/** @param {import("./protocol.js").LoadProgress} progress */
export function formatProgress({ done, total, bytesPerSecond, secondsLeft }) {
  if (bytesPerSecond === undefined) return total ? `${done} of ${total}` : "";
  const parts = [total === null ? formatBytes(done) : `${formatBytes(done)} of ${formatBytes(total)}`];
  if (bytesPerSecond > 0) parts.push(`${formatBytes(bytesPerSecond)}/s`);
  if (secondsLeft) parts.push(`${formatDuration(secondsLeft)} left`);
  return parts.join(" · ");
}

/** @param {string} phase An engine's name for a phase, such as `warming_up`. */
export function formatPhase(phase) {
  const words = phase.replaceAll("_", " ");
  return words.charAt(0).toUpperCase() + words.slice(1);
}
