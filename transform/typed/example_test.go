package typed_test

import (
	"fmt"
	"strconv"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/record"
	"dbcontroller.dev/transform"
	"dbcontroller.dev/transform/typed"
)

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
