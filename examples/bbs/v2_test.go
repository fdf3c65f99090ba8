package bbs

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	"dbcontroller.dev/examples/sampletest"
	bbsv1 "dbcontroller.dev/gen/bbs/v1"
	bbsv2 "dbcontroller.dev/gen/bbs/v2"
	"dbcontroller.dev/record"
	"dbcontroller.dev/resource"
)

func lrpV2(guid string) *bbsv2.LRPDeployment {
	return &bbsv2.LRPDeployment{
		ProcessGuid: guid, Domain: "cf", Instances: 2, Routes: map[string]string{"r": "x"}, Annotation: "note",
		Definitions:        map[string]*bbsv2.Definition{"one": {Rootfs: "a", MemoryMb: 1}, "two": {Rootfs: "b", Ports: []uint32{1}, Action: &bbsv2.Action{Path: "/x"}}},
		ActiveDefinitionId: "two",
	}
}

func createV2(t testing.TB, a api, d *bbsv2.LRPDeployment) *bbsv2.LRPDeployment {
	t.Helper()
	res, err := a.v2.CreateLRPDeployment(context.Background(), connect.NewRequest(&bbsv2.CreateLRPDeploymentRequest{LrpDeployment: d}))
	if err != nil {
		t.Fatal(err)
	}
	return res.Msg.GetLrpDeployment()
}

func getV2(t testing.TB, a api, guid string) *bbsv2.LRPDeployment {
	t.Helper()
	res, err := a.v2.GetLRPDeployment(context.Background(), connect.NewRequest(&bbsv2.GetLRPDeploymentRequest{ProcessGuid: guid}))
	if err != nil {
		t.Fatal(err)
	}
	return res.Msg.GetLrpDeployment()
}

func v2API(t *testing.T) (api, *sampletest.Store) {
	t.Helper()
	s := sampletest.New(t, KindDeployments, KindDefinitions)
	return serve(t, StackV2(s)), s
}

func TestV2CreateGetList(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	a, _ := v2API(t)
	given, want := lrpV2("p"), lrpV2("p")
	given.FormerDefinitionIds = []string{"one"}
	want.ModificationTag = createV2(t, a, given).GetModificationTag()
	if got := getV2(t, a, "p"); !proto.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	_, err := a.v2.CreateLRPDeployment(ctx, connect.NewRequest(&bbsv2.CreateLRPDeploymentRequest{LrpDeployment: want}))
	sampletest.WantCode(t, err, connect.CodeAlreadyExists)
	createV2(t, a, lrpV2("p-2")) // "p-2/..." sorts before "p/..."
	res, err := a.v2.ListLRPDeployments(ctx, connect.NewRequest(&bbsv2.ListLRPDeploymentsRequest{Domain: "cf", Prefix: "p"}))
	if err != nil || len(res.Msg.GetLrpDeployments()) != 2 || !proto.Equal(res.Msg.GetLrpDeployments()[0], want) {
		t.Errorf("%v, %v", res, err)
	}
	for label, change := range map[string]func(*bbsv2.LRPDeployment){
		"slash in guid": func(d *bbsv2.LRPDeployment) { d.ProcessGuid = "a/b" }, "all processes": func(d *bbsv2.LRPDeployment) { d.ProcessGuid = "-" },
		"too many instances": func(d *bbsv2.LRPDeployment) { d.Instances = 101 }, "no definitions": func(d *bbsv2.LRPDeployment) { d.Definitions = nil },
		"foreign active": func(d *bbsv2.LRPDeployment) { d.ActiveDefinitionId = "three" }, "foreign healthy": func(d *bbsv2.LRPDeployment) { d.HealthyDefinitionId = "three" },
		"a healthy one": func(d *bbsv2.LRPDeployment) { d.HealthyDefinitionId = "one" }, "the active one as healthy": func(d *bbsv2.LRPDeployment) { d.HealthyDefinitionId = "two" },
		"slash in id": func(d *bbsv2.LRPDeployment) { d.Definitions["a/b"] = &bbsv2.Definition{} }, "empty id": func(d *bbsv2.LRPDeployment) { d.Definitions[""] = &bbsv2.Definition{} },
		"too many": func(d *bbsv2.LRPDeployment) {
			for i := range maxDefinitions {
				d.Definitions[fmt.Sprint(i)] = &bbsv2.Definition{}
			}
		},
	} {
		d := lrpV2("q")
		change(d)
		if _, err := a.v2.CreateLRPDeployment(ctx, connect.NewRequest(&bbsv2.CreateLRPDeploymentRequest{LrpDeployment: d})); connect.CodeOf(err) != connect.CodeInvalidArgument {
			t.Errorf("%s: %v", label, err)
		}
	}
}

func TestV2Changes(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	a, s := v2API(t)
	want := createV2(t, a, lrpV2("p"))

	up, err := a.v2.UpdateLRPDeployment(ctx, connect.NewRequest(&bbsv2.UpdateLRPDeploymentRequest{ProcessGuid: "p", Instances: proto.Int32(5), HealthyDefinitionId: proto.String("two"), ExpectedModificationTag: want.GetModificationTag()}))
	if err != nil {
		t.Fatal(err)
	}
	stale := proto.CloneOf(want.GetModificationTag())
	want.Instances, want.HealthyDefinitionId = 5, "two"
	want.ModificationTag.Index++
	if !proto.Equal(up.Msg.GetLrpDeployment(), want) {
		t.Errorf("%v, want %v", up.Msg.GetLrpDeployment(), want)
	}
	_, err = a.v2.UpdateLRPDeployment(ctx, connect.NewRequest(&bbsv2.UpdateLRPDeploymentRequest{ProcessGuid: "p", HealthyDefinitionId: proto.String("nine")}))
	sampletest.WantCode(t, err, connect.CodeNotFound)

	add := &bbsv2.AddDefinitionRequest{ProcessGuid: "p", DefinitionId: "three", Definition: &bbsv2.Definition{Rootfs: "c"}, ExpectedModificationTag: stale}
	_, err = a.v2.AddDefinition(ctx, connect.NewRequest(add))
	sampletest.WantCode(t, err, connect.CodeAborted)
	add.ExpectedModificationTag = nil
	added, err := a.v2.AddDefinition(ctx, connect.NewRequest(add))
	if err != nil {
		t.Fatal(err)
	}
	want.Definitions["three"] = add.Definition
	want.ModificationTag.Index++
	if !proto.Equal(added.Msg.GetLrpDeployment(), want) {
		t.Errorf("%v, want %v", added.Msg.GetLrpDeployment(), want)
	}
	_, err = a.v2.AddDefinition(ctx, connect.NewRequest(add))
	sampletest.WantCode(t, err, connect.CodeAlreadyExists)

	_, err = a.v2.ActivateDefinition(ctx, connect.NewRequest(&bbsv2.ActivateDefinitionRequest{ProcessGuid: "p", DefinitionId: "nine"}))
	sampletest.WantCode(t, err, connect.CodeNotFound)
	if _, err = a.v2.ActivateDefinition(ctx, connect.NewRequest(&bbsv2.ActivateDefinitionRequest{ProcessGuid: "p", DefinitionId: "three"})); err != nil {
		t.Fatal(err)
	}
	want.ActiveDefinitionId, want.FormerDefinitionIds = "three", []string{"two", "one"} // which nobody has chosen
	want.ModificationTag.Index++
	if got := getV2(t, a, "p"); !proto.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}

	createV2(t, a, lrpV2("p2"))
	if _, err := a.v2.DeleteLRPDeployment(ctx, connect.NewRequest(&bbsv2.DeleteLRPDeploymentRequest{ProcessGuid: "p"})); err != nil {
		t.Fatal(err)
	}
	_, err = a.v2.DeleteLRPDeployment(ctx, connect.NewRequest(&bbsv2.DeleteLRPDeploymentRequest{ProcessGuid: "p"}))
	sampletest.WantCode(t, err, connect.CodeNotFound)
	if left := s.All(t, KindDefinitions); len(left) != 2 || !strings.HasPrefix(left[0].Key.String(), "p2/") {
		t.Errorf("definitions left: %v", left)
	}
}

// TestDefinitionsDieWithTheirProcess: a definition that is added while its process is
// deleted is either deleted too, or never was.
func TestDefinitionsDieWithTheirProcess(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	a, s := v2API(t)
	for round := range 20 {
		createV2(t, a, lrpV2("p"))
		var done sync.WaitGroup
		for i := range 2 {
			done.Go(func() {
				_, err := a.v2.AddDefinition(ctx, connect.NewRequest(&bbsv2.AddDefinitionRequest{ProcessGuid: "p", DefinitionId: fmt.Sprint("x", i), Definition: &bbsv2.Definition{}}))
				if code := connect.CodeOf(err); err != nil && code != connect.CodeNotFound && code != connect.CodeAborted {
					t.Error(err)
				}
			})
		}
		done.Go(func() {
			if _, err := a.v2.DeleteLRPDeployment(ctx, connect.NewRequest(&bbsv2.DeleteLRPDeploymentRequest{ProcessGuid: "p"})); err != nil {
				t.Error(err)
			}
		})
		done.Wait()
		if left := s.All(t, KindDefinitions); len(left) != 0 {
			t.Fatalf("round %d: left %v", round, left)
		}
	}
}

func TestChangeGivesUpUnderContention(t *testing.T) {
	t.Parallel()
	a, s := v2API(t)
	createV2(t, a, lrpV2("p"))
	tried := 0
	s.BeforeWrite(func([]record.Mutation) error { tried++; return record.ErrMismatch })
	_, err := a.v2.UpdateLRPDeployment(context.Background(), connect.NewRequest(&bbsv2.UpdateLRPDeploymentRequest{ProcessGuid: "p"}))
	sampletest.WantCode(t, err, connect.CodeAborted)
	if tried != resource.Attempts {
		t.Errorf("tried %d times", tried)
	}
}

// TestV2WhileV1IsActive: reads show what the sync brought, writes say where to go.
func TestV2WhileV1IsActive(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	s := sampletest.New(t, KindDeployments, KindDefinitions)
	createV2(t, serve(t, StackV2(s)), lrpV2("p"))
	a := serve(t, StackV1(sampletest.New(t, KindDesiredLRPs), s))
	if got := getV2(t, a, "p"); got.GetActiveDefinitionId() != "two" {
		t.Errorf("read %v", got)
	}
	if _, err := a.v2.ListLRPDeployments(ctx, connect.NewRequest(&bbsv2.ListLRPDeploymentsRequest{})); err != nil {
		t.Error(err)
	}
	expect(followV2(t, a, &bbsv2.WatchLRPDeploymentsRequest{}), putV2(getV2(t, a, "p")), levelV2)
	before := len(s.Writes())
	for name, call := range map[string]func() error{
		"create": func() error {
			_, err := a.v2.CreateLRPDeployment(ctx, connect.NewRequest(&bbsv2.CreateLRPDeploymentRequest{LrpDeployment: lrpV2("q")}))
			return err
		},
		"update": func() error {
			_, err := a.v2.UpdateLRPDeployment(ctx, connect.NewRequest(&bbsv2.UpdateLRPDeploymentRequest{ProcessGuid: "p"}))
			return err
		},
		"add": func() error {
			_, err := a.v2.AddDefinition(ctx, connect.NewRequest(&bbsv2.AddDefinitionRequest{ProcessGuid: "p"}))
			return err
		},
		"activate": func() error {
			_, err := a.v2.ActivateDefinition(ctx, connect.NewRequest(&bbsv2.ActivateDefinitionRequest{ProcessGuid: "p"}))
			return err
		},
		"delete": func() error {
			_, err := a.v2.DeleteLRPDeployment(ctx, connect.NewRequest(&bbsv2.DeleteLRPDeploymentRequest{ProcessGuid: "p"}))
			return err
		},
	} {
		if err := call(); connect.CodeOf(err) != connect.CodeFailedPrecondition || !strings.Contains(err.Error(), "v1 is the active version") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if len(s.Writes()) != before {
		t.Error("something was written")
	}
}

func TestReadsGoByGet(t *testing.T) {
	t.Parallel()
	a := serve(t, StackV2(sampletest.New(t, KindDeployments, KindDefinitions)), connect.WithHTTPGet())
	createV1(t, a, lrpV1("p", "cf"))
	res, err := a.v1.GetDesiredLRP(context.Background(), connect.NewRequest(&bbsv1.GetDesiredLRPRequest{ProcessGuid: "p"}))
	if err != nil || res.Msg.GetDesiredLrp().GetDomain() != "cf" {
		t.Errorf("%v %v", res, err)
	}
}

func TestIsWrite(t *testing.T) {
	t.Parallel()
	for procedure, want := range map[string]bool{
		"/bbs.v1.DesiredLRPService/GetDesiredLRP": false, "/bbs.v1.DesiredLRPService/ListDesiredLRPs": false, "/bbs.v1.DesiredLRPService/WatchDesiredLRPs": false, "/bbs.v2.LRPDeploymentService/WatchLRPDeployments": false,
		"/bbs.v1.DesiredLRPService/CreateDesiredLRP":    true,
		"/bbs.v2.LRPDeploymentService/GetLRPDeployment": false, "/bbs.v2.LRPDeploymentService/ListLRPDeployments": false, "/bbs.v2.LRPDeploymentService/ActivateDefinition": true,
		"/bbs.v1.DesiredLRPService/Nonesuch": true, "": true,
	} {
		if IsWrite(procedure) != want {
			t.Errorf("IsWrite(%q) is %t", procedure, !want)
		}
	}
}
