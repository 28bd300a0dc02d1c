// Stands in for the logger of the studio's repository: says nothing.
const silent = { debug() {}, info() {}, warn() {}, error() {} };
export default { getLogger: () => silent };
