package bbs

import (
	"bytes"
	"context"
	"reflect"
	"slices"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"go.mongodb.org/mongo-driver/v2/bson"
	"google.golang.org/protobuf/proto"

	"dbcontroller.dev/apiversion"
	"dbcontroller.dev/examples/sampletest"
	bbsv1 "dbcontroller.dev/gen/bbs/v1"
	bbsv2 "dbcontroller.dev/gen/bbs/v2"
	"dbcontroller.dev/record"
	"dbcontroller.dev/transform"
)

// TestBothVersionsAtOnce: what one version writes the other reads and watches at once.
func TestBothVersionsAtOnce(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	a, _ := v2API(t)
	old, now := followV1(t, a, &bbsv1.WatchDesiredLRPsRequest{}), followV2(t, a, &bbsv2.WatchLRPDeploymentsRequest{})
	expect(old, levelV1)
	expect(now, levelV2)

	made := createV1(t, a, lrpV1("p", "cf"))
	got := getV2(t, a, "p")
	want := &bbsv2.LRPDeployment{
		ProcessGuid: "p", Domain: "cf", Instances: made.Instances, Routes: made.Routes, Annotation: made.Annotation,
		Definitions: map[string]*bbsv2.Definition{"p": definitionV2(made.Definition)}, ActiveDefinitionId: "p",
		ModificationTag: &bbsv2.ModificationTag{Epoch: made.ModificationTag.Epoch},
	}
	if !proto.Equal(got, want) {
		t.Fatalf("v1 made %v\nv2 reads %v\nwant %v", made, got, want)
	}
	expect(old, putV1(made))
	expect(now, putV2(want))

	add, err := a.v2.AddDefinition(ctx, connect.NewRequest(&bbsv2.AddDefinitionRequest{ProcessGuid: "p", DefinitionId: "next", Definition: &bbsv2.Definition{Rootfs: "new"}}))
	if err != nil {
		t.Fatal(err)
	}
	expect(now, putV2(add.Msg.GetLrpDeployment()))
	made.ModificationTag.Index = 1
	expect(old, putV1(made))
	act, err := a.v2.ActivateDefinition(ctx, connect.NewRequest(&bbsv2.ActivateDefinitionRequest{ProcessGuid: "p", DefinitionId: "next", ExpectedModificationTag: add.Msg.GetLrpDeployment().GetModificationTag()}))
	if err != nil {
		t.Fatal(err)
	}
	made.ModificationTag.Index, made.Definition, made.DefinitionId = 2, &bbsv1.Definition{Rootfs: "new"}, proto.String("next")
	if got := getV1(t, a, "p"); !proto.Equal(got, made) {
		t.Errorf("after v2 activated another definition v1 reads %v, want %v", got, made)
	}
	expect(old, putV1(made))
	expect(now, putV2(act.Msg.GetLrpDeployment()))

	// A tag that one version showed holds for the other.
	changed := updateV1(t, a, &bbsv1.UpdateDesiredLRPRequest{ProcessGuid: "p", Annotation: proto.String("v1"), ExpectedModificationTag: &bbsv1.ModificationTag{
		Epoch: act.Msg.GetLrpDeployment().GetModificationTag().GetEpoch(), Index: act.Msg.GetLrpDeployment().GetModificationTag().GetIndex(),
	}})
	after := getV2(t, a, "p")
	if after.GetAnnotation() != "v1" || len(after.GetDefinitions()) != 2 || after.GetActiveDefinitionId() != "next" || after.GetHealthyDefinitionId() != "" {
		t.Errorf("after a change through v1, v2 reads %v", after)
	}
	expect(old, putV1(changed))
	expect(now, putV2(after))

	deleteV1(t, a, "p")
	_, err = a.v2.GetLRPDeployment(ctx, connect.NewRequest(&bbsv2.GetLRPDeploymentRequest{ProcessGuid: "p"}))
	sampletest.WantCode(t, err, connect.CodeNotFound)
	expect(old, deletedV1("p"))
	expect(now, deletedV2("p"))
}

// TestFiltersOnTheDefinition: v1 can ask for fields of the definition while its own data
// are active. Over v2 data that is refused, by name, and not answered wrongly.
func TestFiltersOnTheDefinition(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	before := serve(t, StackV1(sampletest.New(t, KindDesiredLRPs), nil))
	seedV1(t, before)
	after, _ := v2API(t)
	seedV1(t, after)
	for filter, want := range map[string]string{
		`definition.memory_mb > 64`:                       "b d",
		`definition.rootfs == "r" && domain == "cf-apps"`: "a b",
		`domain == "tcp" || definition.memory_mb == 64`:   "a c d e",
		`!has(definition.action)`:                         "a b c d e",
		`definition.env.name == "A"`:                      "",
		`has(definition)`:                                 "a b c d e",
	} {
		if got := strings.Join(listV1(t, before, &bbsv1.ListDesiredLRPsRequest{Filter: filter}), " "); got != want {
			t.Errorf("%s: listed %q, want %q", filter, got, want)
		}
		path := filter[strings.Index(filter, "definition"):]
		path = path[:strings.IndexAny(path+" ", " )")]
		_, err := after.v1.ListDesiredLRPs(ctx, connect.NewRequest(&bbsv1.ListDesiredLRPsRequest{Filter: filter}))
		sampletest.WantError(t, err, connect.CodeInvalidArgument, "filter: "+path+": a process has several definitions")
		s, err := after.v1.WatchDesiredLRPs(ctx, connect.NewRequest(&bbsv1.WatchDesiredLRPsRequest{Filter: filter}))
		if err == nil {
			s.Receive()
			err = s.Err()
			_ = s.Close() // it has ended
		}
		sampletest.WantError(t, err, connect.CodeInvalidArgument, "filter: "+path)
	}
	if got := strings.Join(listV1(t, before, &bbsv1.ListDesiredLRPsRequest{OrderBy: "definition.memory_mb desc"}), " "); got != "d b a c e" {
		t.Errorf("ordered %s", got)
	}
	_, err := after.v1.ListDesiredLRPs(ctx, connect.NewRequest(&bbsv1.ListDesiredLRPsRequest{OrderBy: "domain, definition.memory_mb desc"}))
	sampletest.WantError(t, err, connect.CodeInvalidArgument, "order_by: definition.memory_mb: ")
}

// moved is what the engine makes of all processes of v1 data on the side of v2, or back.
func moved(t testing.TB, d transform.Direction, from *sampletest.Store, kinds ...string) *sampletest.Store {
	t.Helper()
	ctx := context.Background()
	to := sampletest.New(t, kinds...)
	head := KindDesiredLRPs
	if _, v2 := from.Tokens[KindDeployments]; v2 {
		head = KindDeployments
	}
	for _, r := range from.All(t, head) {
		group := []record.Record{r}
		if head == KindDeployments {
			guid, _ := r.Key.Name()
			definitions, err := from.List(ctx, KindDefinitions, guid+"/", "", 0)
			if err != nil {
				t.Fatal(err)
			}
			group = append(definitions, r)
		}
		for _, out := range mustTransform(t, d, group, nil) {
			if err := to.Write(ctx, []record.Mutation{{Kind: out.Kind, Key: out.Key, Doc: out.Doc, Absent: true}}); err != nil {
				t.Fatal(err)
			}
		}
	}
	return to
}

// TestTokensAcrossTheFlip: a client goes through pages while the active version changes,
// forward and back, between any two of them.
func TestTokensAcrossTheFlip(t *testing.T) {
	t.Parallel()
	up, down := directions(t)
	v1 := sampletest.New(t, KindDesiredLRPs)
	before := serve(t, StackV1(v1, nil))
	seedV1(t, before)
	v2 := moved(t, up, v1, KindDeployments, KindDefinitions)
	after, back := serve(t, StackV2(v2)), serve(t, StackV1(moved(t, down, v2, KindDesiredLRPs), nil))
	for _, req := range []*bbsv1.ListDesiredLRPsRequest{
		{}, {Filter: `instances > 0`}, {Domain: "cf-apps"}, {Prefix: "a"}, {OrderBy: "instances desc"},
		{OrderBy: "domain, instances desc", Filter: `domain != "cf-tasks"`}, {OrderBy: "routes.cf-router"}, {OrderBy: "process_guid"},
		{OrderBy: "process_guid desc", ReadMask: mask("process_guid")},
	} {
		t.Run(req.String(), func(t *testing.T) {
			want := listV1(t, before, proto.CloneOf(req))
			sampletest.AcrossTheFlip(t, before, after, back, want, func(a api, token string) (names []string, next string, err error) {
				req := proto.CloneOf(req)
				req.PageSize, req.PageToken = 1, token
				res, err := a.v1.ListDesiredLRPs(context.Background(), connect.NewRequest(req))
				if err != nil {
					return nil, "", err
				}
				for _, p := range res.Msg.GetDesiredLrps() {
					names = append(names, p.GetProcessGuid())
				}
				return names, res.Msg.GetNextPageToken(), nil
			})
		})
	}
}

// TestWrittenAsMoved: what v1 writes over v2 data is what the engine makes of what it
// writes over v1 data.
func TestWrittenAsMoved(t *testing.T) {
	t.Parallel()
	up, _ := directions(t)
	v1 := sampletest.New(t, KindDesiredLRPs)
	seedV1(t, serve(t, StackV1(v1, nil)))
	viaEngine := moved(t, up, v1, KindDeployments, KindDefinitions)
	direct := sampletest.New(t, KindDeployments, KindDefinitions)
	seedV1(t, serve(t, StackV2(direct)))
	// content is a document without its tag, in the order of its fields' names.
	content := func(doc bson.Raw) bson.D {
		var d bson.D
		if err := bson.Unmarshal(doc, &d); err != nil {
			t.Fatal(err)
		}
		d = slices.DeleteFunc(d, func(e bson.E) bool { return e.Key == fieldTag })
		slices.SortFunc(d, func(a, b bson.E) int { return strings.Compare(a.Key, b.Key) })
		return d
	}
	for _, kind := range []string{KindDeployments, KindDefinitions} {
		want := viaEngine.All(t, kind)
		for i, r := range direct.All(t, kind) {
			if a, b := content(r.Doc), content(want[i].Doc); r.Key != want[i].Key || !reflect.DeepEqual(a, b) {
				t.Errorf("%s: written %s\nmoved %s", r.Key, a, b)
			}
		}
	}
}

// TestWhatV2WroteComesBack: verification compares bytes, so a process that v2 has written,
// and that went to v1 and back, is what it was.
func TestWhatV2WroteComesBack(t *testing.T) {
	t.Parallel()
	up, down := directions(t)
	a, s := v2API(t)
	seedV2(t, a)
	createV2(t, a, lrpV2("p"))
	for _, head := range s.All(t, KindDeployments) {
		guid, _ := head.Key.Name()
		group, err := s.List(context.Background(), KindDefinitions, guid+"/", "", 0)
		if err != nil {
			t.Fatal(err)
		}
		group = append(group, head)
		for i, r := range mustTransform(t, up, mustTransform(t, down, group, nil), group) {
			if r.Key != group[i].Key || !bytes.Equal(r.Doc, group[i].Doc) {
				t.Errorf("%s came back as %s, want %s", r.Key, r.Doc, group[i].Doc)
			}
		}
	}
}

// TestReadsAreWhole: a process that is made anew while it is read is shown as it was
// before, or as it is now, and never as a mixture.
func TestReadsAreWhole(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	for name, read := range map[string]func(t *testing.T, a api) (*bbsv2.LRPDeployment, error){
		"get": func(_ *testing.T, a api) (*bbsv2.LRPDeployment, error) {
			res, err := a.v2.GetLRPDeployment(ctx, connect.NewRequest(&bbsv2.GetLRPDeploymentRequest{ProcessGuid: "p"}))
			return res.Msg.GetLrpDeployment(), err
		},
		"list": func(_ *testing.T, a api) (*bbsv2.LRPDeployment, error) {
			res, err := a.v2.ListLRPDeployments(ctx, connect.NewRequest(&bbsv2.ListLRPDeploymentsRequest{}))
			return res.Msg.GetLrpDeployments()[0], err
		},
		"watch": func(t *testing.T, a api) (*bbsv2.LRPDeployment, error) {
			f := followV2(t, a, &bbsv2.WatchLRPDeploymentsRequest{})
			f.stream.Receive()
			return f.stream.Msg().GetLrpDeployment(), f.stream.Err()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a, s := v2API(t)
			createV2(t, a, lrpV2("p"))
			var now *bbsv2.LRPDeployment
			s.AfterList(KindDefinitions, func() {
				deleteV1(t, a, "p")
				createV1(t, a, lrpV1("p", "cf"))
				now = getV2(t, a, "p")
			})
			if got, err := read(t, a); err != nil || !proto.Equal(got, now) {
				t.Errorf("read %v %v, want %v", got, err, now)
			}
		})
	}
}

// TestMalformedDataAreShownToNobody: v2 shows a process without its active definition as
// it is; v1 says what is wrong.
func TestMalformedDataAreShownToNobody(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	a, s := v2API(t)
	s.Put(t, KindDeployments, bson.D{{Key: "_id", Value: "p"}, {Key: fieldGUID, Value: "p"}, {Key: fieldActive, Value: "gone"}})
	_, err := a.v1.GetDesiredLRP(ctx, connect.NewRequest(&bbsv1.GetDesiredLRPRequest{ProcessGuid: "p"}))
	sampletest.WantError(t, err, connect.CodeDataLoss, `p: the active definition "gone" is not there`)
	if got := getV2(t, a, "p"); got.GetActiveDefinitionId() != "gone" {
		t.Errorf("v2 shows %v", got)
	}
	_, err = a.v2.UpdateLRPDeployment(ctx, connect.NewRequest(&bbsv2.UpdateLRPDeploymentRequest{ProcessGuid: "p"}))
	sampletest.WantError(t, err, connect.CodeDataLoss, "no modification_tag")
	s.Put(t, KindDeployments, bson.D{{Key: "_id", Value: "q"}, {Key: fieldGUID, Value: "q"}, {Key: "instances", Value: "three"}})
	_, err = a.v2.GetLRPDeployment(ctx, connect.NewRequest(&bbsv2.GetLRPDeploymentRequest{ProcessGuid: "q"}))
	sampletest.WantError(t, err, connect.CodeDataLoss, "q: ", "instances")
	if strings.Contains(err.Error(), "three") {
		t.Errorf("the error shows what is stored: %v", err)
	}
}

// TestUsage: the counts tell who still calls v1, over either data.
func TestUsage(t *testing.T) {
	t.Parallel()
	usage := Usage(apiversion.UsageConfig{})
	a := serve(t, usage.Handler(StackV2(sampletest.New(t, KindDeployments, KindDefinitions))))
	createV1(t, a, lrpV1("p", "cf"))
	getV1(t, a, "p")
	getV1(t, a, "p")
	getV2(t, a, "p")
	got := map[string]uint64{}
	for _, c := range usage.Snapshot() {
		got[c.Version+" "+c.Method] += c.Calls
	}
	for method, calls := range map[string]uint64{
		"v1 bbs.v1.DesiredLRPService/CreateDesiredLRP": 1, "v1 bbs.v1.DesiredLRPService/GetDesiredLRP": 2, "v2 bbs.v2.LRPDeploymentService/GetLRPDeployment": 1,
	} {
		if got[method] != calls {
			t.Errorf("%s: %d calls, want %d", method, got[method], calls)
		}
	}
	if len(got) != 3 {
		t.Errorf("counted %v: what v1 calls in process is no call of v2's clients", got)
	}
}
