/** Where the server answers about the recording that this page shows: `/`, or `/r/<recording>/` for one that was opened from a page. */
export const base = /^.*\/r\/[^/]+\//.exec(location.pathname)?.[0] ?? "/";
/** Where the server itself is: its list of recordings, files that are opened, and layouts that are shared. */
export const home = base.replace(/r\/[^/]+\/$/, "");
