// Package extjson formats BSON as Extended JSON for people, so that it keeps its types when it is read
// again.
package extjson

import (
	"bytes"
	"encoding/json"
	"math"
	"strconv"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// OneLine is the width that spreads nothing over lines.
const OneLine = 1 << 30

// format formats a value as relaxed Extended JSON. It marks longs that a reader would take for
// ints, so that the output keeps its types when it is read again. Objects and lists longer than
// width are spread over lines, indented by depth.
func format(v bson.RawValue, depth, width int) string {
	elems, err := bson.Raw(v.Value).Elements()
	list := v.Type == bson.TypeArray
	if v.Type != bson.TypeEmbeddedDocument && !list || err != nil {
		return scalarJSON(v)
	}
	open, end := "{", "}"
	if list {
		open, end = "[", "]"
	}
	parts := make([]string, len(elems))
	long := len(open) + len(end)
	for i, e := range elems {
		parts[i] = format(e.Value(), depth+1, width)
		if !list {
			parts[i] = quote(e.Key()) + ": " + parts[i]
		}
		long += len(parts[i]) + 2
	}
	// A part that spans lines forces its parent to do so, or the indentation would be lost.
	if len(parts) == 0 || 2*depth+long <= width && !strings.Contains(strings.Join(parts, ""), "\n") {
		return open + strings.Join(parts, ", ") + end
	}
	indent := "\n" + strings.Repeat("  ", depth+1)
	return open + indent + strings.Join(parts, ","+indent) + indent[:len(indent)-2] + end
}

// scalarJSON formats a value without elements.
func scalarJSON(v bson.RawValue) string {
	if v.Type == bson.TypeInt64 {
		n := v.Int64()
		// Within this range, relaxed Extended JSON is read as an int.
		if n >= math.MinInt32 && n <= math.MaxInt32 {
			return `{"$numberLong":"` + strconv.FormatInt(n, 10) + `"}`
		}
		return strconv.FormatInt(n, 10)
	}
	// The driver encodes documents only, so wrap the value and cut the wrapper off again.
	text, err := bson.MarshalExtJSON(bson.D{{Key: "", Value: v}}, false, false)
	if err != nil {
		return quote("(not to be shown: " + err.Error() + ")")
	}
	return string(bytes.TrimSuffix(bytes.TrimPrefix(text, []byte(`{"":`)), []byte("}")))
}

func quote(s string) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(s) // encoding a string cannot fail
	return strings.TrimSuffix(b.String(), "\n")
}

// Doc formats a document. Objects and lists longer than width are spread over lines.
func Doc(doc bson.Raw, width int) string {
	return format(bson.RawValue{Type: bson.TypeEmbeddedDocument, Value: doc}, 0, width)
}

// Value formats a value on one line.
func Value(v bson.RawValue) string { return format(v, 0, OneLine) }
