package etcdstore

import (
	"encoding/binary"
	"fmt"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/record"
)

// A record's key in etcd begins with the ordered form of its key (record.AppendOrdered). So a range
// of etcd keys is a range of records. The ordered form of a string is complete. Other values may
// compare as equal although they differ, so the key itself and its length follow their ordered
// form.
const (
	isString = 0
	isOther  = 1
)

// keyText returns a key in its form in etcd, without the collection's prefix.
func keyText(k record.Key) string {
	b := record.AppendOrdered(nil, k.Value())
	if bson.Type(k[0]) == bson.TypeString {
		return string(append(b, isString))
	}
	b = binary.BigEndian.AppendUint32(append(b, k...), uint32(len(k)))
	return string(append(b, isOther))
}

// place returns the position of a cursor: in front of all keys that compare as equal to it.
func place(c record.Cursor) string { return string(record.AppendOrdered(nil, record.Key(c).Value())) }

// prefixText returns the common beginning of the keys of all strings that begin with name.
func prefixText(name string) string {
	return string(record.AppendOrderedText([]byte{record.OrderedStrings}, []byte(name)))
}

// keyFrom parses the form of keyText.
func keyFrom(text string) (record.Key, error) {
	end := len(text) - 1
	switch {
	case end < 3:
	case text[end] == isString:
		// Remove the type byte, the final zeros, and the escapes of AppendOrderedText.
		return record.StringKey(strings.ReplaceAll(text[1:end-2], "\x00\xff", "\x00")), nil
	case text[end] == isOther && end > 4:
		if n := int(binary.BigEndian.Uint32([]byte(text[end-4 : end]))); n > 0 && n < end-4 {
			return record.Key(text[end-4-n : end-4]), nil
		}
	}
	return "", fmt.Errorf("key %q is not the key of a record", text)
}
