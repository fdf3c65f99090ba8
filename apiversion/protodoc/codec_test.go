package protodoc_test

import (
	"fmt"
	"reflect"
	"slices"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"pgregory.net/rapid"

	"dbcontroller.dev/apiversion/protodoc"
	bbsv1 "dbcontroller.dev/gen/bbs/v1"
	bbsv2 "dbcontroller.dev/gen/bbs/v2"
	"dbcontroller.dev/record"
	"dbcontroller.dev/transform"
	"dbcontroller.dev/transform/lawtest"
	"dbcontroller.dev/transform/typed"
)

// Groups whose kinds are messages: a variable and its value in v1, one in v2, and what
// the program does not know of either goes along.
type (
	oldVars struct {
		Name  string                   `typed:"name"`
		Env   *bbsv1.EnvVar            `typed:"kind=env"`
		Tags  *bbsv1.ModificationTag   `typed:"kind=tags"`
		Procs map[string]*bbsv1.Action `typed:"kind=actions,key={group}/{key}"`
	}
	newVars struct {
		Name string            `typed:"name"`
		Var  *bbsv2.Definition `typed:"kind=vars"`
		Tags *bbsv2.Routes     `typed:"kind=routes"`
	}
)

var vars = typed.Group[oldVars, newVars]{
	Name: "vars", Revision: "1", CodecOf: protodoc.Kinds, KeepRest: "_rest",
	Up: func(old oldVars, _ newVars) (newVars, error) {
		out := newVars{Var: &bbsv2.Definition{Env: []*bbsv2.EnvVar{{Name: old.Env.GetName(), Value: old.Env.GetValue()}}}, Tags: &bbsv2.Routes{Entries: map[string]string{}}}
		for id, a := range old.Procs {
			out.Tags.Entries[id] = a.GetPath()
		}
		if old.Tags != nil {
			out.Var.Rootfs, out.Var.MemoryMb = old.Tags.GetEpoch(), int32(old.Tags.GetIndex())+1
		}
		return out, nil
	},
	Down: func(v newVars, _ oldVars) (oldVars, error) {
		out := oldVars{Env: &bbsv1.EnvVar{Name: v.Var.GetEnv()[0].GetName(), Value: v.Var.GetEnv()[0].GetValue()}, Procs: map[string]*bbsv1.Action{}}
		for id, path := range v.Tags.GetEntries() {
			out.Procs[id] = &bbsv1.Action{Path: path}
		}
		if v.Var.GetMemoryMb() > 0 {
			out.Tags = &bbsv1.ModificationTag{Epoch: v.Var.GetRootfs(), Index: uint32(v.Var.GetMemoryMb()) - 1}
		}
		return out, nil
	},
}

func TestGroupsOfMessages(t *testing.T) {
	t.Parallel()
	spec, err := vars.Spec()
	if err != nil {
		t.Fatal(err)
	}
	reg := transform.NewRegistry("vars")
	if err := reg.Add("v1", "v2", spec); err != nil {
		t.Fatal(err)
	}
	up, err := reg.Direction("v1", "v2")
	if err != nil {
		t.Fatal(err)
	}
	down, err := reg.Direction("v2", "v1")
	if err != nil {
		t.Fatal(err)
	}
	name := rapid.SampledFrom([]string{"a", "b"})
	word := rapid.StringMatching(`[a-c]{0,2}`)
	stored := func(t *rapid.T, kind, key string, fields bson.D) record.Record {
		doc := append(bson.D{{Key: "_id", Value: key}}, fields...)
		if rapid.Bool().Draw(t, kind+" of a newer program") {
			doc = append(doc, bson.E{Key: "newer", Value: word.Draw(t, "newer")})
		}
		raw, err := bson.Marshal(doc)
		if err != nil {
			t.Fatal(err)
		}
		return record.Record{Kind: kind, Key: record.StringKey(key), Doc: raw}
	}
	old := rapid.Custom(func(t *rapid.T) []record.Record {
		n := name.Draw(t, "name")
		out := []record.Record{stored(t, "env", n, bson.D{{Key: "name", Value: word.Draw(t, "n")}, {Key: "value", Value: word.Draw(t, "v")}})}
		if rapid.Bool().Draw(t, "tag") {
			out = append(out, stored(t, "tags", n, bson.D{{Key: "epoch", Value: word.Draw(t, "e")}, {Key: "index", Value: int64(rapid.IntRange(0, 3).Draw(t, "i"))}}))
		}
		for _, id := range rapid.SliceOfNDistinct(word, 0, 2, rapid.ID).Draw(t, "ids") {
			if id != "" {
				out = append(out, stored(t, "actions", n+"/"+id, bson.D{{Key: "path", Value: word.Draw(t, "p")}, {Key: "args", Value: bson.A{}}, {Key: "user", Value: ""}, {Key: "dir", Value: ""}}))
			}
		}
		return out
	})
	fresh := rapid.Custom(func(t *rapid.T) []record.Record {
		// As v2's own handlers would store them: no field is left out.
		env := stored(t, "env", "a", bson.D{{Key: "name", Value: word.Draw(t, "n")}, {Key: "value", Value: "v"}})
		id, _, err := up.GroupOf(env.Kind, env.Key)
		if err != nil {
			t.Fatal(err)
		}
		out, err := up.Transform(id, transform.Group{Name: id.Name, Records: []record.Record{env}}, transform.Group{Name: id.Name})
		if err != nil {
			t.Fatal(err)
		}
		return out
	})
	lawtest.Check(t, lawtest.Case{Up: up, Down: down, Old: old, New: fresh})
}

// TestMergeKeepsWhatIsWithin: the complement keeps what a program does not know within a message
// that changed.
func TestMergeKeepsWhatIsWithin(t *testing.T) {
	t.Parallel()
	c := protodoc.Kinds(reflect.TypeFor[*bbsv1.DesiredLRP]())
	held, err := bson.Marshal(bson.D{{Key: "_id", Value: "p"}, {Key: "definition", Value: bson.D{{Key: "memory_mb", Value: int32(1)}, {Key: "newer", Value: "x"}}}})
	if err != nil {
		t.Fatal(err)
	}
	m, err := c.Decode(held)
	if err != nil {
		t.Fatal(err)
	}
	m.(*bbsv1.DesiredLRP).Definition.MemoryMb = 2
	doc, err := c.(typed.Merger).Merge(held, m)
	if err != nil || doc.Lookup("definition", "newer").StringValue() != "x" || doc.Lookup("definition", "memory_mb").Int32() != 2 {
		t.Errorf("merged to %v, %v", doc, err)
	}
	if fields, err := c.Fields(); err != nil || !slices.Contains(fields, "process_guid") {
		t.Errorf("fields %v, %v", fields, err)
	}
}

func TestKindsOfMessagesAlone(t *testing.T) {
	t.Parallel()
	if c := protodoc.Kinds(reflect.TypeFor[*struct{ A int }]()); c != nil {
		t.Error("a struct has the codec of a message")
	}
}

// ExampleKinds is a group of messages: what v1 keeps in two records is one in v2. What the
// program does not know of each goes along, and back to its own record.
func ExampleKinds() {
	type Old struct {
		Env    *bbsv1.EnvVar `typed:"kind=env"`
		Action *bbsv1.Action `typed:"kind=actions"`
	}
	type New struct {
		Definition *bbsv2.Definition `typed:"kind=definitions"`
	}
	spec, err := typed.Group[Old, New]{
		Name: "definitions", Revision: "1", CodecOf: protodoc.Kinds, KeepRest: "_rest",
		Up: func(old Old, _ New) (New, error) {
			return New{&bbsv2.Definition{
				Env:    []*bbsv2.EnvVar{{Name: old.Env.GetName(), Value: old.Env.GetValue()}},
				Action: &bbsv2.Action{Path: old.Action.GetPath()},
			}}, nil
		},
		Down: func(n New, _ Old) (Old, error) {
			env := n.Definition.GetEnv()[0]
			return Old{&bbsv1.EnvVar{Name: env.GetName(), Value: env.GetValue()}, &bbsv1.Action{Path: n.Definition.GetAction().GetPath()}}, nil
		},
	}.Spec()
	if err != nil {
		fmt.Println(err)
		return
	}
	rec := func(kind string, fields ...bson.E) record.Record {
		doc, _ := bson.Marshal(append(bson.D{{Key: "_id", Value: "web"}}, fields...))
		return record.Record{Kind: kind, Key: record.StringKey("web"), Doc: doc}
	}
	group := transform.Group{Name: string(record.StringKey("web"))}
	src := group
	src.Records = []record.Record{rec("env", bson.E{Key: "name", Value: "PORT"}, bson.E{Key: "note", Value: "a"}), rec("actions", bson.E{Key: "path", Value: "/run"}, bson.E{Key: "note", Value: "b"})}
	src.Records, err = spec.Up(src, group)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(src.Records[0].Doc.Lookup("action", "path"))
	back, err := spec.Down(src, group)
	for _, r := range back {
		fmt.Println(r.Kind, r.Doc.Lookup("note"), err)
	}
	// Output:
	// "/run"
	// env "a" <nil>
	// actions "b" <nil>
}
