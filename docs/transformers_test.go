package docs_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"pgregory.net/rapid"

	"dbcontroller.dev/record"
	"dbcontroller.dev/transform"
	"dbcontroller.dev/transform/lawtest"
	"dbcontroller.dev/transform/lens"
	"dbcontroller.dev/transform/typed"
)

// jobsLens makes one record of one record. The hook is in Go.
const jobsLens = `
lens: 1
kinds: {from: jobs, to: tasks}
operations:
  - rename: {from: memory_mb, to: memory}
  - hook: {name: seconds, from: [timeout], to: [seconds]}
  - remove: {field: queue, default: default}
  - add: {field: priority, default: normal}
`

// jobs is the transformer of jobsLens. Seconds are "30s" in v1 and 30 in v2.
func jobs() (transform.Spec, error) {
	l, err := lens.Parse("jobs.yaml", []byte(jobsLens), lens.WithHooks(lens.Hooks{
		"seconds": {Revision: "1", Up: parseSeconds, Down: formatSeconds},
	}))
	if err != nil {
		return transform.Spec{}, err
	}
	return l.Spec("", "", lens.Managed()), nil
}

func parseSeconds(in []bson.RawValue) ([]bson.RawValue, error) {
	text, _ := in[0].StringValueOK()
	n, err := strconv.ParseInt(strings.TrimSuffix(text, "s"), 10, 32)
	return one(int32(n), err)
}

func formatSeconds(in []bson.RawValue) ([]bson.RawValue, error) {
	n, ok := in[0].Int32OK()
	if !ok {
		return nil, fmt.Errorf("seconds are of type %s", in[0].Type)
	}
	return one(fmt.Sprintf("%ds", n), nil)
}

func one(v any, err error) ([]bson.RawValue, error) {
	if err != nil {
		return nil, err
	}
	t, data, err := bson.MarshalValue(v)
	return []bson.RawValue{{Type: t, Value: data}}, err
}

type (
	BuildV1 struct {
		ID    string   `bson:"_id"`
		Owner string   `bson:"owner"`
		Steps []string `bson:"steps"`
	}
	BuildV2 struct {
		ID    string `bson:"_id"`
		Owner string `bson:"owner"`
	}
	Step struct {
		Command string `bson:"command"`
	}

	OldBuild struct {
		Build *BuildV1 `typed:"kind=builds"`
	}
	NewBuild struct {
		Build *BuildV2        `typed:"kind=builds"`
		Steps map[string]Step `typed:"kind=steps,key={group}/{key}"`
	}
)

// builds makes 1 + N records of one: the group of a step follows from its key.
var builds = typed.Group[OldBuild, NewBuild]{
	Name: "builds", Revision: "1",
	Up: func(old OldBuild, _ NewBuild) (NewBuild, error) {
		out := NewBuild{Build: &BuildV2{old.Build.ID, old.Build.Owner}, Steps: map[string]Step{}}
		for i, command := range old.Build.Steps {
			out.Steps[strconv.Itoa(i)] = Step{command}
		}
		return out, nil
	},
	Down: func(now NewBuild, _ OldBuild) (OldBuild, error) {
		if now.Build == nil {
			return OldBuild{}, fmt.Errorf("%d steps have no build", len(now.Steps))
		}
		out := OldBuild{&BuildV1{ID: now.Build.ID, Owner: now.Build.Owner, Steps: []string{}}}
		for i := range len(now.Steps) {
			step, ok := now.Steps[strconv.Itoa(i)]
			if !ok {
				return OldBuild{}, fmt.Errorf("step %d of %d is missing", i, len(now.Steps))
			}
			out.Build.Steps = append(out.Build.Steps, step.Command)
		}
		return out, nil
	},
}

type (
	Order struct {
		ID       string `bson:"_id"`
		Customer string `bson:"customer"`
		Total    int64  `bson:"total"`
	}
	Account struct {
		ID     string `bson:"_id"`
		Orders []Line `bson:"orders"` // by order; a list, since a Go map has no order of its own
	}
	Line struct {
		Order string `bson:"order"`
		Total int64  `bson:"total"`
	}

	OldOrders struct {
		Orders map[string]Order `typed:"kind=orders,group=customer"`
	}
	NewAccount struct {
		Name    string   `typed:"name"`
		Account *Account `typed:"kind=accounts"`
	}
)

// accounts makes one record of all orders of a customer: which customer that is, the
// order says, and its key does not.
var accounts = typed.Group[OldOrders, NewAccount]{
	Name: "accounts", Revision: "1",
	Up: func(old OldOrders, _ NewAccount) (NewAccount, error) {
		out := NewAccount{Account: &Account{}}
		for _, id := range slices.Sorted(maps.Keys(old.Orders)) {
			out.Account.ID = old.Orders[id].Customer
			out.Account.Orders = append(out.Account.Orders, Line{id, old.Orders[id].Total})
		}
		return out, nil
	},
	Down: func(now NewAccount, _ OldOrders) (OldOrders, error) {
		if len(now.Account.Orders) == 0 {
			return OldOrders{}, errors.New("no orders, and v1 has nowhere to keep an account without them")
		}
		out, last := OldOrders{Orders: map[string]Order{}}, ""
		for _, l := range now.Account.Orders {
			if l.Order <= last {
				return OldOrders{}, fmt.Errorf("order %q does not come after %q: v1 could not keep their places", l.Order, last)
			}
			out.Orders[l.Order], last = Order{ID: l.Order, Customer: now.Name, Total: l.Total}, l.Order
		}
		return out, nil
	},
}

// both compiles the two directions between v1 and v2.
func both(t *testing.T, specs ...transform.Spec) (up, down transform.Direction) {
	t.Helper()
	registry := transform.NewRegistry("shop.example.com")
	if err := registry.Add("v1", "v2", specs...); err != nil {
		t.Fatal(err)
	}
	up, err := registry.Direction("v1", "v2")
	if err != nil {
		t.Fatal(err)
	}
	if down, err = registry.Direction("v2", "v1"); err != nil {
		t.Fatal(err)
	}
	return up, down
}

func rec(t *rapid.T, kind string, doc any) record.Record {
	raw, err := bson.Marshal(doc)
	if err != nil {
		t.Fatal(err)
	}
	key, err := record.KeyOfDoc(raw)
	if err != nil {
		t.Fatal(err)
	}
	return record.Record{Kind: kind, Key: key, Doc: raw}
}

var word = rapid.StringMatching(`[a-z]{1,8}`)

func TestBuildsLaws(t *testing.T) {
	spec, err := builds.Spec()
	if err != nil {
		t.Fatal(err)
	}
	up, down := both(t, spec)
	lawtest.Check(t, lawtest.Case{
		Up: up, Down: down,
		Old: rapid.Custom(func(t *rapid.T) []record.Record {
			return []record.Record{rec(t, "builds", BuildV1{rapid.SampledFrom([]string{"a", "b"}).Draw(t, "id"), word.Draw(t, "owner"), rapid.SliceOfN(word, 0, 4).Draw(t, "steps")})}
		}),
		New: rapid.Custom(func(t *rapid.T) []record.Record {
			id := rapid.SampledFrom([]string{"a", "b"}).Draw(t, "id")
			group := []record.Record{rec(t, "builds", BuildV2{id, word.Draw(t, "owner")})}
			for i := range rapid.IntRange(0, 4).Draw(t, "steps") {
				group = append(group, rec(t, "steps", bson.D{{Key: "_id", Value: fmt.Sprint(id, "/", i)}, {Key: "command", Value: word.Draw(t, "command")}}))
			}
			return group
		}),
	})
}

func TestAccountsLaws(t *testing.T) {
	spec, err := accounts.Spec()
	if err != nil {
		t.Fatal(err)
	}
	up, down := both(t, spec)
	customer, total := rapid.SampledFrom([]string{"ann", "bob"}), rapid.Int64()
	lawtest.Check(t, lawtest.Case{
		Up: up, Down: down,
		Old: rapid.Custom(func(t *rapid.T) []record.Record {
			c, n := customer.Draw(t, "customer"), rapid.IntRange(1, 4).Draw(t, "orders")
			var group []record.Record
			for i := range n {
				group = append(group, rec(t, "orders", Order{fmt.Sprint("o", i), c, total.Draw(t, "total")}))
			}
			return group
		}),
		New: rapid.Custom(func(t *rapid.T) []record.Record {
			a := Account{ID: customer.Draw(t, "customer")}
			for _, id := range slices.Sorted(maps.Keys(rapid.MapOfN(word, total, 1, 4).Draw(t, "orders"))) {
				a.Orders = append(a.Orders, Line{id, total.Draw(t, "total")})
			}
			return []record.Record{rec(t, "accounts", a)}
		}),
	})
}

type (
	JobV1 struct {
		ID       string `bson:"_id"`
		MemoryMB int32  `bson:"memory_mb"`
		Timeout  string `bson:"timeout"`
		Queue    string `bson:"queue"`
	}
	JobV2 struct {
		ID       string `bson:"_id"`
		Memory   int32  `bson:"memory"`
		Seconds  int32  `bson:"seconds"`
		Priority string `bson:"priority"`
	}
)

func TestJobsLaws(t *testing.T) {
	spec, err := jobs()
	if err != nil {
		t.Fatal(err)
	}
	up, down := both(t, spec)
	id, small := rapid.SampledFrom([]string{"a", "b"}), rapid.Int32Range(0, 9999)
	lawtest.Check(t, lawtest.Case{
		Up: up, Down: down, LossyUp: true, LossyDown: true, // queue, and priority
		Old: rapid.Custom(func(t *rapid.T) []record.Record {
			return []record.Record{rec(t, "jobs", JobV1{id.Draw(t, "id"), small.Draw(t, "memory"), fmt.Sprintf("%ds", small.Draw(t, "timeout")), word.Draw(t, "queue")})}
		}),
		New: rapid.Custom(func(t *rapid.T) []record.Record {
			return []record.Record{rec(t, "tasks", JobV2{id.Draw(t, "id"), small.Draw(t, "memory"), small.Draw(t, "timeout"), word.Draw(t, "priority")})}
		}),
	})
}

const deadlinesLens = `
lens: 1
kinds: {from: tasks, to: tasks}
operations:
  - rename: {from: seconds, to: deadline}
`

// chain registers two steps, and a kind that ends with the first one.
func chain() (*transform.Registry, error) {
	first, err := jobs()
	if err != nil {
		return nil, err
	}
	second, err := lens.Parse("deadlines.yaml", []byte(deadlinesLens))
	if err != nil {
		return nil, err
	}
	registry := transform.NewRegistry("jobs.example.com")
	if err := registry.Add("v1", "v2", first, dropped("job_history")); err != nil {
		return nil, err
	}
	return registry, registry.Add("v2", "v3", second.Spec("", "", lens.Managed()))
}

// dropped declares that the new version does not have a kind.
func dropped(kind string) transform.Spec {
	return transform.Spec{
		Name: kind, Revision: "1", Discontinued: true,
		Old: transform.Side{Kinds: []transform.GroupedKind{{KindSpec: record.KindSpec{Name: kind}}}},
	}
}

// Example_chain: from v1 to v3 a record is read once and written once.
func Example_chain() {
	registry, err := chain()
	if err != nil {
		fmt.Println(err)
		return
	}
	up, err := registry.Direction("v1", "v3")
	if err != nil {
		fmt.Println(err)
		return
	}
	doc, _ := bson.Marshal(JobV1{"a", 64, "30s", "night"})
	key := record.StringKey("a")
	id, _, _ := up.GroupOf("jobs", key)
	out, err := up.Transform(id, transform.Group{Name: id.Name, Records: []record.Record{{Kind: "jobs", Key: key, Doc: doc}}}, transform.Group{Name: id.Name})
	fmt.Println(out[0].Kind, out[0].Doc, err)
	fmt.Println(transform.SyncsFrom(up, "job_history"))
	// Output:
	// tasks {"_id": "a","memory": {"$numberInt":"64"},"deadline": {"$numberInt":"30"},"priority": "normal"} <nil>
	// false
}
