package typed_test

import (
	"errors"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"pgregory.net/rapid"

	"dbcontroller.dev/record"
	"dbcontroller.dev/transform"
)

func directions(t testing.TB, s transform.Spec) (up, down transform.Direction) {
	t.Helper()
	r := transform.NewRegistry("test")
	if err := r.Add("v1", "v2", s); err != nil {
		t.Fatal(err)
	}
	up, err1 := r.Direction("v1", "v2")
	down, err2 := r.Direction("v2", "v1")
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	return up, down
}

func rec(t interface{ Fatal(...any) }, kind string, d bson.D) record.Record {
	doc, err := bson.Marshal(d)
	if err != nil {
		t.Fatal(err)
	}
	key, err := record.KeyOfDoc(doc)
	if err != nil {
		t.Fatal(err)
	}
	return record.Record{Kind: kind, Key: key, Doc: doc}
}

func put(t testing.TB, d transform.Direction, src, have []record.Record) ([]record.Record, error) {
	t.Helper()
	id, ok, err := d.GroupOf(src[0].Kind, src[0].Key)
	if !ok || err != nil {
		t.Fatal(ok, err)
	}
	return d.Transform(id, transform.Group{Name: id.Name, Records: src}, transform.Group{Name: id.Name, Records: have})
}

func text(t *rapid.T, of ...string) string { return rapid.SampledFrom(of).Draw(t, "text") }

func explode() { panic("no such unit") }
