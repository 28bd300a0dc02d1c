/** The base path of this page's recording: `/`, or `/r/<recording>/` for one that was opened from a page. */
export const base = /^.*\/r\/[^/]+\//.exec(location.pathname)?.[0] ?? "/";
/** The base path of the server: its list of recordings, uploads, and shared layouts. */
export const home = base.replace(/r\/[^/]+\/$/, "");
