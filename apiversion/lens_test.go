package apiversion_test

import (
	"errors"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"google.golang.org/protobuf/proto"

	"dbcontroller.dev/apiversion"
	"dbcontroller.dev/apiversion/prototest"
	"dbcontroller.dev/transform"
)

// originLens renames origin to notes.origin... of an item's document: a stand-in for a
// lens that turns NewerItem into Item.
type originLens struct{}

func (originLens) rename(doc, have bson.Raw, from, to string) (bson.Raw, error) {
	var d, h bson.D
	if err := errors.Join(bson.Unmarshal(doc, &d), bson.Unmarshal(have, &h)); have != nil && err != nil {
		return nil, err
	}
	var out bson.D
	for _, e := range d {
		switch e.Key {
		case from:
			e.Key = to
			if to == "" {
				continue
			}
		case "_id":
			e.Value = "new/" + strings.TrimPrefix(e.Value.(string), "new/")
		}
		out = append(out, e)
	}
	for _, e := range h {
		if e.Key == to && from == "" {
			out = append(out, e)
		}
	}
	return bson.Marshal(out)
}

func (l originLens) Up(doc, have bson.Raw) (bson.Raw, error) {
	return l.rename(doc, have, "", "origin")
}
func (l originLens) Down(doc, have bson.Raw) (bson.Raw, error) {
	return l.rename(doc, have, "origin", "")
}

// prefixed has names with a prefix in one version.
type prefixed struct {
	transform.Identity
	add, cut string
}

func (p prefixed) Name(n string) (string, error) { return p.add + strings.TrimPrefix(n, p.cut), nil }

func TestFromLens(t *testing.T) {
	t.Parallel()
	old, now := prototest.Message(t, "kinds.proto", "Item"), prototest.Message(t, "kinds.proto", "NewerItem")
	r, err := apiversion.FromLens(apiversion.Resource{
		Old: old, New: now, OldName: "key", NewName: "key",
		UpMapping: prefixed{add: "new/"}, DownMapping: prefixed{cut: "new/"},
	}, originLens{})
	if err != nil {
		t.Fatal(err)
	}
	up, err := r.Up(text(t, old, `key: "k" count: 1 tags: "t"`), text(t, now, `key: "new/k" origin: "here"`))
	if err != nil {
		t.Fatal(err)
	}
	if want := text(t, now, `key: "new/k" origin: "here" count: 1 tags: "t"`); !proto.Equal(up, want) {
		t.Errorf("up %v", up)
	}
	down, err := r.Down(up, nil)
	if err != nil || !proto.Equal(down, text(t, old, `key: "k" count: 1 tags: "t"`)) {
		t.Errorf("down %v, %v", down, err)
	}
	// A field that the message does not have would be lost.
	r, err = apiversion.FromLens(apiversion.Resource{Old: now, New: old, OldName: "key", NewName: "key", UpMapping: transform.Identity{}, DownMapping: transform.Identity{}}, keepLens{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Up(text(t, now, `key: "k" origin: "x"`), nil); err == nil || !strings.Contains(err.Error(), "origin: is no field of prototest.Item") {
		t.Errorf("error is %v", err)
	}
	if _, err := apiversion.FromLens(apiversion.Resource{Old: old, New: now}, keepLens{}); err == nil {
		t.Error("a resource without mappings was accepted")
	}
}

// keepLens changes nothing.
type keepLens struct{}

func (keepLens) Up(doc, _ bson.Raw) (bson.Raw, error)   { return doc, nil }
func (keepLens) Down(doc, _ bson.Raw) (bson.Raw, error) { return doc, nil }
