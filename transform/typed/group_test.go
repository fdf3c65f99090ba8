package typed_test

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"pgregory.net/rapid"

	"dbcontroller.dev/record"
	"dbcontroller.dev/transform"
	"dbcontroller.dev/transform/lawtest"
	"dbcontroller.dev/transform/typed"
)

// The types of a small copy of the BBS: a desired LRP has its one definition within; a
// deployment has definitions of its own, by id.
type definition struct {
	RootFS string `bson:"rootfs"`
}

type desiredLRP struct {
	GUID       string      `bson:"_id"`
	Domain     string      `bson:"domain,omitempty"`
	Instances  int32       `bson:"instances"`
	Epoch      string      `bson:"epoch"`
	Definition *definition `bson:"definition"`
	Rest       typed.Rest  `bson:"-"`
}

type deployment struct {
	GUID      string     `bson:"_id"`
	Domain    string     `bson:"domain,omitempty"`
	Instances int32      `bson:"instances"`
	Epoch     string     `bson:"epoch"`
	Active    string     `bson:"active_definition_id"`
	Healthy   string     `bson:"healthy_definition_id,omitempty"`
	Rest      typed.Rest `bson:"-"`
}

type definitionRecord struct {
	Definition *definition `bson:"definition"`
}

type oldLRP struct {
	LRP *desiredLRP `typed:"kind=desired_lrps"`
}

type newLRP struct {
	Deployment  *deployment                  `typed:"kind=deployments"`
	Definitions map[string]*definitionRecord `typed:"kind=definitions,key={group}/{key}"`
}

func promote(old oldLRP, have newLRP) (newLRP, error) {
	lrp := old.LRP
	if lrp.Definition == nil {
		return newLRP{}, errors.New("no definition")
	}
	out := newLRP{
		Deployment:  &deployment{GUID: lrp.GUID, Domain: lrp.Domain, Instances: lrp.Instances, Epoch: lrp.Epoch, Active: lrp.GUID, Healthy: lrp.GUID, Rest: lrp.Rest},
		Definitions: map[string]*definitionRecord{},
	}
	if d := have.Deployment; d != nil && d.Epoch == lrp.Epoch { // an update, not made anew
		out.Deployment.Active, out.Deployment.Healthy = d.Active, d.Healthy
		out.Definitions = have.Definitions
	}
	out.Definitions[out.Deployment.Active] = &definitionRecord{lrp.Definition}
	return out, nil
}

func project(lrp newLRP, _ oldLRP) (oldLRP, error) {
	d := lrp.Deployment
	if d == nil {
		return oldLRP{}, errors.New("definitions without a deployment")
	}
	active := lrp.Definitions[d.Active]
	if active == nil {
		return oldLRP{}, fmt.Errorf("the active definition %q is not there", d.Active)
	}
	return oldLRP{&desiredLRP{GUID: d.GUID, Domain: d.Domain, Instances: d.Instances, Epoch: d.Epoch, Definition: active.Definition, Rest: d.Rest}}, nil
}

func lrps() typed.Group[oldLRP, newLRP] {
	return typed.Group[oldLRP, newLRP]{Name: "lrp", Revision: "1", Up: promote, Down: project}
}

func spec[A, B any](t testing.TB, g typed.Group[A, B]) transform.Spec {
	t.Helper()
	s, err := g.Spec()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestGroupLaws(t *testing.T) {
	t.Parallel()
	up, down := directions(t, spec(t, lrps()))
	guids := rapid.SampledFrom([]string{"g", "h"})
	def := func(t *rapid.T) bson.D {
		return bson.D{{Key: "rootfs", Value: text(t, "a", "b")}, {Key: "future", Value: text(t, "x")}}[:rapid.IntRange(1, 2).Draw(t, "unknown")]
	}
	common := func(t *rapid.T) bson.D {
		return bson.D{{Key: "instances", Value: rapid.SampledFrom([]any{int32(1), int64(2)}).Draw(t, "instances")}, {Key: "epoch", Value: text(t, "e", "f")}, {Key: "unknown", Value: bson.A{nil, 1.5}}, {Key: "domain", Value: text(t, "", "cf")}}
	}
	old := rapid.Custom(func(t *rapid.T) []record.Record {
		d := append(bson.D{{Key: "_id", Value: guids.Draw(t, "guid")}}, rapid.Permutation(append(common(t), bson.E{Key: "definition", Value: def(t)})).Draw(t, "order")...)
		return []record.Record{rec(t, "desired_lrps", d)}
	})
	fresh := rapid.Custom(func(t *rapid.T) []record.Record {
		guid := guids.Draw(t, "guid")
		ids := rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"one", "two", guid}), 1, 3, rapid.ID).Draw(t, "ids")
		d := append(bson.D{{Key: "_id", Value: guid}}, rapid.Permutation(append(common(t), bson.E{Key: "active_definition_id", Value: ids[0]}, bson.E{Key: "healthy_definition_id", Value: text(t, append(ids, "")...)})).Draw(t, "order")...)
		out := []record.Record{rec(t, "deployments", d)}
		for _, id := range ids {
			out = append(out, rec(t, "definitions", bson.D{{Key: "_id", Value: guid + "/" + id}, {Key: "future", Value: 1}, {Key: "definition", Value: def(t)}}))
		}
		return out
	})
	lawtest.Check(t, lawtest.Case{Up: up, Down: down, Old: old, New: fresh, LossyUp: true, LossyDown: true})
}

func TestGroup(t *testing.T) {
	t.Parallel()
	up, down := directions(t, spec(t, lrps()))
	if !up.Whole("desired_lrps") || down.Whole("deployments") {
		t.Error("single records are not scanned whole, or groups are")
	}
	x := []record.Record{rec(t, "desired_lrps", bson.D{{Key: "_id", Value: "g"}, {Key: "instances", Value: int32(3)}, {Key: "epoch", Value: "e"}, {Key: "definition", Value: bson.D{{Key: "rootfs", Value: "a"}}}, {Key: "future", Value: 1.5}})}
	y, err := put(t, up, x, nil)
	if err != nil || len(y) != 2 || y[0].Key != record.StringKey("g/g") || y[1].Doc.Lookup("future").Double() != 1.5 || y[1].Doc.Lookup("active_definition_id").StringValue() != "g" {
		t.Fatalf("became %v, %v", y, err)
	}
	if back, err := put(t, down, y, nil); err != nil || !bytes.Equal(back[0].Doc, x[0].Doc) {
		t.Errorf("came back as %v, %v", back, err)
	}
	id, _, _ := up.GroupOf("desired_lrps", x[0].Key)
	if kind, key := up.Anchor(id); kind != "deployments" || key != record.StringKey("g") {
		t.Errorf("anchor %s %s", kind, key)
	}
	if got := up.TargetSelect(id)[1]; got != (record.Selector{Kind: "definitions", Key: record.StringKey("g/"), Prefix: true}) {
		t.Errorf("definitions are found by %v", got)
	}
	if _, _, err := up.GroupOfTarget("definitions", record.StringKey("no-slash")); err == nil {
		t.Error("a definition without a deployment's name has a group")
	}
	for _, tc := range []struct{ name, want string }{{"a/b", `holds "/"`}, {"g", "no definition"}} {
		_, err := put(t, up, []record.Record{rec(t, "desired_lrps", bson.D{{Key: "_id", Value: tc.name}})}, nil)
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: error is %v, want %q", tc.name, err, tc.want)
		}
	}
}

func TestGroupFunctionsRunApart(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(){"no such unit": explode, "runtime.Goexit was called": runtime.Goexit} {
		g := lrps()
		g.Up = func(oldLRP, newLRP) (newLRP, error) { end(); return newLRP{}, nil }
		up, _ := directions(t, spec(t, g))
		_, err := put(t, up, []record.Record{rec(t, "desired_lrps", bson.D{{Key: "_id", Value: "g"}})}, nil)
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("error is %v, want %q", err, name)
		}
	}
}

type note struct {
	Owner string `bson:"owner"`
	Text  string `bson:"text"`
}

type book struct {
	Notes []note `bson:"notes"`
	Names []string
}

type notes struct {
	Owner string          `typed:"name"`
	Notes map[string]note `typed:"kind=notes,group=owner"`
}

type books struct {
	Book *book `typed:"kind=books"`
}

// Notes go by their owner, who is in their content alone.
func TestGroupByContent(t *testing.T) {
	t.Parallel()
	s := spec(t, typed.Group[notes, books]{
		Name: "books",
		Up: func(old notes, _ books) (books, error) {
			out := books{&book{}}
			for _, name := range []string{"n1", "n2"} {
				if n, ok := old.Notes[name]; ok {
					if n.Owner != old.Owner {
						return out, fmt.Errorf("note of %s in the group of %s", n.Owner, old.Owner)
					}
					out.Book.Names, out.Book.Notes = append(out.Book.Names, name), append(out.Book.Notes, n)
				}
			}
			return out, nil
		},
		Down: func(b books, _ notes) (notes, error) {
			out := notes{Notes: map[string]note{}}
			for i, name := range b.Book.Names {
				out.Notes[name] = b.Book.Notes[i]
			}
			return out, nil
		},
	})
	up, down := directions(t, s)
	names := rapid.SampledFrom([]string{"ann", "bob"})
	old := rapid.Custom(func(t *rapid.T) (out []record.Record) {
		owner := names.Draw(t, "owner")
		for _, name := range []string{"n1", "n2"}[:rapid.IntRange(1, 2).Draw(t, "notes")] {
			out = append(out, rec(t, "notes", bson.D{{Key: "_id", Value: name}, {Key: "owner", Value: owner}, {Key: "text", Value: text(t, "", "x")}}))
		}
		return out
	})
	fresh := rapid.Custom(func(t *rapid.T) []record.Record {
		owner := names.Draw(t, "owner")
		return []record.Record{rec(t, "books", bson.D{{Key: "_id", Value: owner}, {Key: "names", Value: bson.A{"n1"}}, {Key: "notes", Value: bson.A{bson.D{{Key: "owner", Value: owner}, {Key: "text", Value: text(t, "", "y")}}}}})}
	})
	lawtest.Check(t, lawtest.Case{Up: up, Down: down, Old: old, New: fresh})
	if up.LineageKind(0) == "" {
		t.Error("the groups go by name")
	}
	if _, err := up.ContentOf(rec(t, "notes", bson.D{{Key: "_id", Value: "n"}})); err == nil || !strings.Contains(err.Error(), "no field owner") {
		t.Errorf("a note without an owner: %v", err)
	}
}

// message stands for a protobuf message, which is stored in documents as its codec writes
// it.
type message struct {
	owner string
	lines int
}

type messageCodec struct{}

func (messageCodec) Decode(doc bson.Raw) (any, error) {
	owner, _ := doc.Lookup("ownerName").StringValueOK()
	lines, _ := doc.Lookup("lineCount").AsInt64OK()
	return &message{owner, int(lines)}, nil
}

func (messageCodec) Encode(v any) (bson.Raw, error) {
	m := v.(*message)
	return bson.Marshal(bson.D{{Key: "ownerName", Value: m.owner}, {Key: "lineCount", Value: int64(m.lines)}})
}

func (messageCodec) Fields() ([]string, error) { return []string{"lineCount", "ownerName"}, nil }

func TestOtherCodecs(t *testing.T) {
	t.Parallel()
	type oldGroup struct {
		Message *message `typed:"kind=messages"`
	}
	type newGroup struct {
		Note *note `typed:"kind=notes"`
	}
	up, down := directions(t, spec(t, typed.Group[oldGroup, newGroup]{
		Name: "g", CodecOf: func(t reflect.Type) typed.Codec {
			if t == reflect.TypeFor[*message]() {
				return messageCodec{}
			}
			return nil
		},
		Up: func(o oldGroup, _ newGroup) (newGroup, error) {
			return newGroup{&note{Owner: o.Message.owner, Text: strings.Repeat("x", o.Message.lines)}}, nil
		},
		Down: func(n newGroup, _ oldGroup) (oldGroup, error) {
			return oldGroup{&message{n.Note.Owner, len(n.Note.Text)}}, nil
		},
	}))
	x := []record.Record{rec(t, "messages", bson.D{{Key: "_id", Value: "m"}, {Key: "future", Value: 1}, {Key: "lineCount", Value: int64(2)}, {Key: "ownerName", Value: "ann"}})}
	y, err := put(t, up, x, nil)
	if err != nil || y[0].Doc.Lookup("text").StringValue() != "xx" {
		t.Fatal(y, err)
	}
	if back, err := put(t, down, y, x); err != nil || !bytes.Equal(back[0].Doc, x[0].Doc) {
		t.Errorf("came back as %v, %v", back, err)
	}
}

func TestGroupDeclarations(t *testing.T) {
	t.Parallel()
	check := func(name, want string, err error) {
		t.Helper()
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error is %v, want %q", name, err, want)
		}
	}
	type noTag struct{ LRP *desiredLRP }
	_, err := typed.Group[noTag, newLRP]{Name: "g", Up: func(noTag, newLRP) (n newLRP, _ error) { return }, Down: func(newLRP, noTag) (n noTag, _ error) { return }}.Spec()
	check("no tag", "noTag.LRP: no tag", err)
	type value struct {
		LRP desiredLRP `typed:"kind=a"`
	}
	_, err = typed.Group[value, newLRP]{Name: "g", Up: func(value, newLRP) (n newLRP, _ error) { return }, Down: func(newLRP, value) (n value, _ error) { return }}.Spec()
	check("a value", "a kind is a pointer or a map", err)
	type many struct {
		A map[string]note `typed:"kind=a,key={group}/{key}"`
	}
	_, err = typed.Group[many, newLRP]{Name: "g", Up: func(many, newLRP) (n newLRP, _ error) { return }, Down: func(newLRP, many) (n many, _ error) { return }}.Spec()
	check("no anchor", "must be a pointer", err)
	type bad struct {
		A map[string]note `typed:"kind=a,key={key}"`
		B *note           `typed:"kind=b,size=1"`
	}
	_, err = typed.Group[bad, newLRP]{Name: "g", Up: func(bad, newLRP) (n newLRP, _ error) { return }, Down: func(newLRP, bad) (n bad, _ error) { return }}.Spec()
	check("pattern", "it has no {group}", err)
	check("option", `unknown option "size=1"`, err)
	type moment struct {
		A *time.Time `typed:"kind=a"`
	}
	_, err = typed.Group[moment, newLRP]{Name: "g", Up: func(moment, newLRP) (n newLRP, _ error) { return }, Down: func(newLRP, moment) (n moment, _ error) { return }}.Spec()
	check("no struct", "time.Time is no struct", err)
}
