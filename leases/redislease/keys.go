package redislease

import "strings"

// keys are those of one name. They share its hash tag, so that they lie in one
// slot of a cluster.
type keys struct {
	name, fence, owners string
	free                string // the channel of releases
}

// escaper keeps braces out of the hash tag: Redis ends a tag at the first
// closing brace, and takes an empty one for none.
var escaper = strings.NewReplacer("%", "%25", "{", "%7B", "}", "%7D")

func (b *Backend) keys(name string) keys {
	k := b.prefix + "{" + escaper.Replace(name) + "}"
	return keys{k, k + ":fence", k + ":owners", k + ":free"}
}
