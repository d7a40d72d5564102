package riverlease

import (
	"github.com/riverqueue/river/rivertype"

	"github.com/simple-module/core/middleware/internal/taskkey"
)

// KeyFunc makes the key of a job, from its args, kind, queue or metadata. The
// key names the lease or semaphore; one that can't be a name, because it is
// longer than 512 bytes or not valid UTF-8, is hashed. The empty key means
// that this job needs none: it runs as it is. An error means that the job does
// not run: it is the attempt's error.
//
// A key function is called once for each attempt, by many jobs at once.
type KeyFunc func(job *rivertype.JobRow) (string, error)

// ArgsKey makes keys of prefix and the named fields of the job's args, in the
// order named; with no fields named, of all args.
//
//	ArgsKey("import", "dataset") // args {"dataset": 42}: import:42
//
// A field is a name on the top level of the args' JSON, not of the Go struct;
// its value may be of any kind, also null. The same values make the same key
// on Postgres and SQLite, in whatever order, spacing or escapes the JSON
// has; numbers are exact however long they are. Different values make
// different keys, also where several fields are named: "a:b","c" differs from
// "a","b:c". A field that the args do not have is an error, so a field with
// omitempty is not a good key.
func ArgsKey(prefix string, fields ...string) KeyFunc {
	return overArgs(taskkey.Args(prefix, fields...))
}

// HostKey makes keys of prefix and the host of the URL in the named field of
// the job's args:
//
//	HostKey("host", "url") // args {"url": "https://Example.com:8443/x"}: host:example.com
//
// The host is the same however the URL spells it: case, scheme and port, user,
// path, a trailing dot, an internationalized name, an IP address. A field that is missing or is no
// string, or a URL without an http or https host, is an error.
func HostKey(prefix, urlField string) KeyFunc { return overArgs(taskkey.Host(prefix, urlField)) }

func overArgs(key func([]byte) (string, error)) KeyFunc {
	return func(job *rivertype.JobRow) (string, error) { return key(job.EncodedArgs) }
}
