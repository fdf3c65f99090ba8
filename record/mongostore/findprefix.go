package mongostore

import (
	"errors"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"
)

const (
	prefixesPerFind = 100 // of an $or
	// patternMost is how long a pattern may be, well below what the server takes.
	patternMost = 8 << 10
	// strays is how many documents between prefixes a walk over all of them passes, and as many
	// again as it has found, before it asks for the prefixes alone.
	strays = 100
)

// patternOf is the regular expression of a prefix, if it can be one. An $in of these is one walk
// over the index in so many steps: for a thousand prefixes a third of the time of $ors, of which
// the server plans each branch by itself.
func patternOf(prefix string) (pattern string, ok bool) {
	pattern = "^" + regexp.QuoteMeta(prefix)
	return pattern, prefix != "" && len(pattern) <= patternMost && utf8.ValidString(prefix) && !strings.ContainsRune(prefix, 0)
}

func appendPatterns(dst []byte, patterns []string) []byte {
	dst, id := beginElement(dst, bson.TypeEmbeddedDocument, "_id")
	dst, in := beginElement(dst, bson.TypeArray, "$in")
	for i, p := range patterns {
		dst = appendIndexed(dst, byte(bson.TypeRegex), i)
		dst = bsoncore.AppendRegex(dst, p, "")
	}
	return endDocument(endDocument(dst, in), id)
}

func appendPrefixes(dst []byte, prefixes []string) []byte {
	dst, or := beginElement(dst, bson.TypeArray, "$or")
	for i, p := range prefixes {
		dst = appendIndexed(dst, byte(bson.TypeEmbeddedDocument), i)
		start := len(dst)
		dst = append(dst, 0, 0, 0, 0)
		dst = endDocument(appendNames(dst, p, successor(p)), start)
	}
	return endDocument(dst, or)
}

// appendNames selects the names from one to another; none is the end of all strings.
func appendNames(dst []byte, from, to string) []byte {
	dst, id := beginElement(dst, bson.TypeEmbeddedDocument, "_id")
	dst = bsoncore.AppendStringElement(dst, "$gte", from)
	if to != "" {
		dst = bsoncore.AppendStringElement(dst, "$lt", to)
	}
	return endDocument(dst, id)
}

// findFilter runs a find with a filter, all of them at one snapshot.
type findFilter func(batch int, sorted bool, filter func(dst []byte) []byte, yield func(doc []byte) error) error

// findPrefixes finds documents by (sorted, disjoint) prefixes of their names.
func findPrefixes(prefixes []string, run findFilter, yield func(doc []byte) error) error {
	const batch = 10000
	var patterns, others []string
	for _, p := range prefixes {
		if pattern, ok := patternOf(p); ok {
			patterns = append(patterns, pattern)
		} else {
			others = append(others, p)
		}
	}
	for patterns := range chunkKeys(patterns) {
		if err := run(batch, false, func(b []byte) []byte { return appendPatterns(b, patterns) }, yield); err != nil {
			return err
		}
	}
	for others := range slices.Chunk(others, prefixesPerFind) {
		if err := run(batch, false, func(b []byte) []byte { return appendPrefixes(b, others) }, yield); err != nil {
			return err
		}
	}
	return nil
}

// errStrays ends a walk that meets too much between the prefixes.
var errStrays = errors.New("too much is between the prefixes")

// findNear finds documents by prefixes that are probably neighbours, as those are of the names
// of one page: it walks from the first to the last of them, which takes no longer than a list
// does. Where too much else is between them, the rest is found by the prefixes.
func findNear(prefixes []string, run findFilter, yield func(doc []byte) error) error {
	if len(prefixes) < 2 {
		return findPrefixes(prefixes, run, yield)
	}
	s := selection{prefixes: prefixes}
	found, strayed, at := 0, 0, ""
	err := run(2*len(prefixes), true, func(b []byte) []byte {
		return appendNames(b, prefixes[0], successor(prefixes[len(prefixes)-1]))
	}, func(doc []byte) error {
		at, _ = bson.Raw(doc).Lookup("_id").StringValueOK()
		if s.covers(at) {
			found++
			return yield(doc)
		}
		if strayed++; strayed > strays+found {
			return errStrays
		}
		return nil
	})
	if !errors.Is(err, errStrays) {
		return err
	}
	// In the order of names all prefixes before this one are done, and it has none of them.
	next, _ := slices.BinarySearch(prefixes, at)
	return findPrefixes(prefixes[next:], run, yield)
}
