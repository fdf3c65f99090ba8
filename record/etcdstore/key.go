package etcdstore

import (
	"encoding/binary"
	"fmt"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/record"
)

// A record's key in etcd begins with the ordered form of the key (record.AppendOrdered), so
// that a range of etcd is one of records. That of a string has all that there is to know. All
// others, of which several may compare as equal, have the key itself behind it, and its length.
const (
	isString = 0
	isOther  = 1
)

// keyText is a key as it stands in etcd, behind the collection's prefix.
func keyText(k record.Key) string {
	b := record.AppendOrdered(nil, k.Value())
	if bson.Type(k[0]) == bson.TypeString {
		return string(append(b, isString))
	}
	b = binary.BigEndian.AppendUint32(append(b, k...), uint32(len(k)))
	return string(append(b, isOther))
}

// place is where a cursor is: in front of whatever compares as equal to it.
func place(c record.Cursor) string { return string(record.AppendOrdered(nil, record.Key(c).Value())) }

// prefixText is what the keys of all strings that begin with name begin with.
func prefixText(name string) string {
	return string(record.AppendOrderedText([]byte{record.OrderedStrings}, []byte(name)))
}

// keyFrom is the inverse of keyText.
func keyFrom(text string) (record.Key, error) {
	end := len(text) - 1
	switch {
	case end < 3:
	case text[end] == isString:
		return record.StringKey(strings.ReplaceAll(text[1:end-2], "\x00\xff", "\x00")), nil
	case text[end] == isOther && end > 4:
		if n := int(binary.BigEndian.Uint32([]byte(text[end-4 : end]))); n > 0 && n < end-4 {
			return record.Key(text[end-4-n : end-4]), nil
		}
	}
	return "", fmt.Errorf("key %q is none of a record", text)
}
