package redislease

import "strings"

// escaper keeps braces out of the hash tag: Redis ends a tag at the first
// closing brace, and takes an empty one for none.
var escaper = strings.NewReplacer("%", "%25", "{", "%7B", "}", "%7D")

// key is where a name's holds are. Its other keys begin with it, and so share
// its hash tag and lie in the same slot of a cluster.
func (b *Backend) key(name string) string {
	return b.prefix + "{" + escaper.Replace(name) + "}"
}

func fenceKey(key string) string             { return key + ":fence" }
func releasedKey(key, process string) string { return key + ":released:" + process }
func lineKey(key string) string              { return key + ":line" }
func turnChannel(key, ticket string) string  { return lineKey(key) + ":" + ticket } // as in line.lua
