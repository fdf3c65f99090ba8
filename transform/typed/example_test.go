package typed_test

import (
	"fmt"
	"strconv"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/record"
	"dbcontroller.dev/transform"
	"dbcontroller.dev/transform/typed"
)

func ExampleCompile() {
	type JobV1 struct {
		ID       string `bson:"_id"`
		MemoryMB int32  `bson:"memory_mb"`
		Timeout  string `bson:"timeout"`
	}
	type JobV2 struct {
		ID       string `bson:"_id"`
		Memory   int32  `bson:"memory"`
		Timeout  int32  `bson:"timeout"`
		Priority string `bson:"priority"`
	}
	jobs, err := typed.Compile(typed.Pair[JobV1, JobV2]{
		Name: "jobs", Revision: "1",
		OldKind: record.KindSpec{Name: "jobs"}, NewKind: record.KindSpec{Name: "tasks"},
		Fields: []typed.Field{
			typed.Rename("memory_mb", "memory"),
			typed.Convert("timeout", "timeout",
				func(s string) (int32, error) {
					n, err := strconv.ParseInt(strings.TrimSuffix(s, "s"), 10, 32)
					return int32(n), err
				},
				func(n int32) (string, error) { return fmt.Sprintf("%ds", n), nil }),
			typed.NewOnly("priority", "normal"),
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	// The engine gets the Spec.
	registry := transform.NewRegistry("jobs.example.com")
	if err := registry.Add("v1", "v2", jobs.Spec); err != nil {
		fmt.Println(err)
		return
	}
	up, err := registry.Direction("v1", "v2")
	if err != nil {
		fmt.Println(err)
		return
	}
	key := record.StringKey("a")
	doc, _ := bson.Marshal(bson.D{{Key: "_id", Value: "a"}, {Key: "memory_mb", Value: int32(64)}, {Key: "timeout", Value: "30s"}, {Key: "unknown", Value: true}})
	id, _, _ := up.GroupOf("jobs", key)
	out, err := up.Transform(id, transform.Group{Name: id.Name, Records: []record.Record{{Kind: "jobs", Key: key, Doc: doc}}}, transform.Group{Name: id.Name})
	fmt.Println(out[0].Doc, err)
	// Requests of the old version get the Mapping.
	fmt.Println(jobs.Up.Field("memory_mb"))
	fmt.Println(jobs.Up.Compare(transform.Condition{Path: "timeout", Op: transform.OpEqual, Values: []any{"5s"}}))
	fmt.Println(jobs.Up.Order("timeout"))
	// Output:
	// {"_id": "a","memory": {"$numberInt":"64"},"timeout": {"$numberInt":"30"},"unknown": true,"priority": "normal"} <nil>
	// [memory] <nil>
	// [{timeout == [5]}] <nil>
	//  timeout: its values are converted, and sort in another order in the other version
}

func ExampleGroup() {
	type Step struct {
		Command string `bson:"command"`
	}
	type JobV1 struct {
		Name  string   `bson:"_id"`
		Owner string   `bson:"owner"`
		Steps []string `bson:"steps"`
	}
	type JobV2 struct {
		Name  string `bson:"_id"`
		Owner string `bson:"owner"`
	}
	type Old struct {
		Job *JobV1 `typed:"kind=jobs"`
	}
	type New struct {
		Job   *JobV2          `typed:"kind=jobs_v2"`
		Steps map[string]Step `typed:"kind=steps,key={group}/{key}"`
	}
	spec, err := typed.Group[Old, New]{
		Name: "jobs", Revision: "1",
		Up: func(old Old, _ New) (New, error) {
			out := New{Job: &JobV2{old.Job.Name, old.Job.Owner}, Steps: map[string]Step{}}
			for i, c := range old.Job.Steps {
				out.Steps[strconv.Itoa(i)] = Step{c}
			}
			return out, nil
		},
		Down: func(n New, _ Old) (Old, error) {
			out := Old{&JobV1{Name: n.Job.Name, Owner: n.Job.Owner}}
			for i := range len(n.Steps) {
				out.Job.Steps = append(out.Job.Steps, n.Steps[strconv.Itoa(i)].Command)
			}
			return out, nil
		},
	}.Spec()
	if err != nil {
		fmt.Println(err)
		return
	}
	doc, _ := bson.Marshal(JobV1{"build", "ann", []string{"fetch", "make"}})
	key := record.StringKey("build")
	out, err := spec.Up(transform.Group{Name: string(key), Records: []record.Record{{Kind: "jobs", Key: key, Doc: doc}}}, transform.Group{Name: string(key)})
	transform.SortRecords(out)
	for _, r := range out {
		fmt.Println(r.Kind, r.Doc)
	}
	fmt.Println(err)
	// Output:
	// jobs_v2 {"_id": "build","owner": "ann"}
	// steps {"_id": "build/0","command": "fetch"}
	// steps {"_id": "build/1","command": "make"}
	// <nil>
}

// The kinds that the comment of Group shows.
func ExampleGroup_kinds() {
	type Job struct {
		Name  string   `bson:"_id"`
		Steps []string `bson:"steps"`
	}
	type Task struct {
		Name string `bson:"_id"`
	}
	type Step struct {
		Command string `bson:"command"`
	}
	type OldGroup struct {
		Job *Job `typed:"kind=jobs"`
	}
	type NewGroup struct {
		Name  string          `typed:"name"`
		Task  *Task           `typed:"kind=tasks"`
		Steps map[string]Step `typed:"kind=steps,key={group}/{key}"`
	}
	spec, err := typed.Group[OldGroup, NewGroup]{
		Name: "jobs", Revision: "1",
		Up: func(old OldGroup, _ NewGroup) (NewGroup, error) {
			out := NewGroup{Task: &Task{old.Job.Name}, Steps: map[string]Step{}}
			for i, c := range old.Job.Steps {
				out.Steps[strconv.Itoa(i)] = Step{c}
			}
			return out, nil
		},
		Down: func(n NewGroup, _ OldGroup) (OldGroup, error) {
			out := OldGroup{&Job{Name: n.Name}}
			for i := range len(n.Steps) {
				out.Job.Steps = append(out.Job.Steps, n.Steps[strconv.Itoa(i)].Command)
			}
			return out, nil
		},
	}.Spec()
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, k := range append(spec.Old.Kinds, spec.New.Kinds...) {
		fmt.Println(k.Name)
	}
	// Output:
	// jobs
	// tasks
	// steps
}
