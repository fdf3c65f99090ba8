package recordio

import (
	"errors"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"dbcontroller.dev/internal/store/mongostore/wire"
)

const (
	prefixesPerFind = 100 // branches of an $or
	// patternMost bounds the length of one pattern, well below the server's limit.
	patternMost = 8 << 10
	// strays is how many documents between the prefixes findNear passes before it asks for the
	// prefixes alone. It passes as many more as it has found.
	strays = 100
)

// patternOf returns the regular expression of a prefix, if it has one. The server walks the index
// once, in one step per pattern, for an $in of patterns. For a thousand prefixes that takes a third
// of the time of $or, because the server plans each branch of an $or separately.
func patternOf(prefix string) (pattern string, ok bool) {
	pattern = "^" + regexp.QuoteMeta(prefix)
	return pattern, prefix != "" && len(pattern) <= patternMost && utf8.ValidString(prefix) && !strings.ContainsRune(prefix, 0)
}

func appendPatterns(dst []byte, patterns []string) []byte {
	dst, id := wire.BeginElement(dst, bson.TypeEmbeddedDocument, "_id")
	dst, in := wire.BeginElement(dst, bson.TypeArray, "$in")
	for i, p := range patterns {
		dst = wire.AppendIndexed(dst, byte(bson.TypeRegex), i)
		dst = bsoncore.AppendRegex(dst, p, "")
	}
	return wire.EndDocument(wire.EndDocument(dst, in), id)
}

func appendPrefixes(dst []byte, prefixes []string) []byte {
	dst, or := wire.BeginElement(dst, bson.TypeArray, "$or")
	for i, p := range prefixes {
		dst = wire.AppendIndexed(dst, byte(bson.TypeEmbeddedDocument), i)
		start := len(dst)
		dst = append(dst, 0, 0, 0, 0)
		dst = wire.EndDocument(AppendNames(dst, p, Successor(p)), start)
	}
	return wire.EndDocument(dst, or)
}

// AppendNames selects the names from from up to, but not including, to. An empty to means the end
// of all strings.
func AppendNames(dst []byte, from, to string) []byte {
	dst, id := wire.BeginElement(dst, bson.TypeEmbeddedDocument, "_id")
	dst = bsoncore.AppendStringElement(dst, "$gte", from)
	if to != "" {
		dst = bsoncore.AppendStringElement(dst, "$lt", to)
	}
	return wire.EndDocument(dst, id)
}

// findFilter runs a find with a filter. All calls read at one snapshot.
type findFilter func(batch int, sorted bool, filter func(dst []byte) []byte, yield func(doc []byte) error) error

// findPrefixes finds documents by prefixes of their names. The prefixes are sorted and disjoint.
func findPrefixes(prefixes []string, run findFilter, yield func(doc []byte) error) error {
	const batch = 10000
	// Most prefixes have a pattern; the rest need the slower form.
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

// errStrays ends a walk that meets too many documents between the prefixes.
var errStrays = errors.New("too many records are between the prefixes")

// findNear finds documents by prefixes that are probably neighbours, like those of the names on one
// page. It walks from the first prefix to the last, which takes no longer than a list. If too many
// documents lie between the prefixes, it finds the rest by prefix.
func findNear(prefixes []string, run findFilter, yield func(doc []byte) error) error {
	if len(prefixes) < 2 {
		return findPrefixes(prefixes, run, yield)
	}
	s := Selection{Prefixes: prefixes}
	found, strayed, at := 0, 0, ""
	err := run(2*len(prefixes), true, func(b []byte) []byte {
		return AppendNames(b, prefixes[0], Successor(prefixes[len(prefixes)-1]))
	}, func(doc []byte) error {
		at, _ = bson.Raw(doc).Lookup("_id").StringValueOK()
		if s.Covers(at) {
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
	// The walk is in name order: all prefixes before at are done, and at itself has none of them.
	next, _ := slices.BinarySearch(prefixes, at)
	return findPrefixes(prefixes[next:], run, yield)
}
