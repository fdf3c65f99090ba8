package adapt

import (
	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/record"
)

// differ returns the dotted path of a field that differs between two documents. The order of fields
// does not count, and numbers compare by value.
func differ(a, b bson.Raw) (path string, differs bool) {
	as, errA := a.Elements()
	bs, errB := b.Elements()
	if errA != nil || errB != nil {
		return "", true
	}
	other := make(map[string]bson.RawValue, len(bs))
	for _, e := range bs {
		other[e.Key()] = e.Value()
	}
	for _, e := range as {
		v, there := other[e.Key()]
		if !there {
			return e.Key(), true
		}
		if path, differs := valuesDiffer(e.Value(), v); differs {
			return join(e.Key(), path), true
		}
		// The fields left in other are only in b.
		delete(other, e.Key())
	}
	for _, e := range bs {
		if _, left := other[e.Key()]; left {
			return e.Key(), true
		}
	}
	return "", false
}

func valuesDiffer(a, b bson.RawValue) (path string, differs bool) {
	if a.Type == bson.TypeEmbeddedDocument && b.Type == bson.TypeEmbeddedDocument || a.Type == bson.TypeArray && b.Type == bson.TypeArray {
		return differ(bson.Raw(a.Value), bson.Raw(b.Value))
	}
	// Keys treat equal numbers of different types as equal, and so do clients.
	x, errX := record.KeyOf(a)
	y, errY := record.KeyOf(b)
	return "", errX != nil || errY != nil || x != y
}

func join(name, path string) string {
	if path == "" {
		return name
	}
	return name + "." + path
}
