package bbs

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"

	"connectrpc.com/connect"
	"go.mongodb.org/mongo-driver/v2/bson"
	"google.golang.org/protobuf/proto"

	"dbcontroller.dev/apiversion"
	"dbcontroller.dev/examples/sampletest"
	bbsv1 "dbcontroller.dev/gen/bbs/v1"
	bbsv2 "dbcontroller.dev/gen/bbs/v2"
	"dbcontroller.dev/record"
)

func lrpV1(guid, domain string) *bbsv1.DesiredLRP {
	return &bbsv1.DesiredLRP{
		ProcessGuid: guid, Domain: domain, Instances: 3, Routes: map[string]string{"cf-router": `[{"port":8080}]`, "a.b": ""}, Annotation: "mine",
		Definition: &bbsv1.Definition{
			Rootfs: "preloaded:jammy", Env: []*bbsv1.EnvVar{{Name: "PORT", Value: "8080"}}, Action: &bbsv1.Action{Path: "/bin/app", Args: []string{"-v"}, User: "vcap"},
			MemoryMb: 256, DiskMb: 1024, Ports: []uint32{8080, 4000000000}, CpuWeight: 5, Privileged: true, LogGuid: "log", StartTimeoutMs: 1 << 40,
		},
	}
}

func createV1(t testing.TB, a api, lrp *bbsv1.DesiredLRP) *bbsv1.DesiredLRP {
	t.Helper()
	res, err := a.v1.CreateDesiredLRP(context.Background(), connect.NewRequest(&bbsv1.CreateDesiredLRPRequest{DesiredLrp: lrp}))
	if err != nil {
		t.Fatal(err)
	}
	return res.Msg.GetDesiredLrp()
}

func getV1(t testing.TB, a api, guid string) *bbsv1.DesiredLRP {
	t.Helper()
	res, err := a.v1.GetDesiredLRP(context.Background(), connect.NewRequest(&bbsv1.GetDesiredLRPRequest{ProcessGuid: guid}))
	if err != nil {
		t.Fatal(err)
	}
	return res.Msg.GetDesiredLrp()
}

// TestV1 runs the whole v1 API over both versions of the data: clients must not be able
// to tell them apart.
func TestV1(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	for name, stack := range stacks(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for name, test := range v1Tests {
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					a, s := stack(t)
					test(t, a, s)
				})
			}
			t.Run("create and get", func(t *testing.T) {
				t.Parallel()
				a, _ := stack(t)
				want := lrpV1("p", "cf")
				made := createV1(t, a, want)
				if made.GetModificationTag().GetEpoch() == "" || made.GetModificationTag().GetIndex() != 0 {
					t.Errorf("tag of a new process: %v", made.GetModificationTag())
				}
				want.ModificationTag = made.GetModificationTag()
				if !proto.Equal(made, want) || !proto.Equal(getV1(t, a, "p"), want) {
					t.Errorf("made %v\nread %v\nwant %v", made, getV1(t, a, "p"), want)
				}
				_, err := a.v1.CreateDesiredLRP(ctx, connect.NewRequest(&bbsv1.CreateDesiredLRPRequest{DesiredLrp: want}))
				sampletest.WantCode(t, err, connect.CodeAlreadyExists)
				wantTold(t, err, "p: record exists already")
				_, err = a.v1.GetDesiredLRP(ctx, connect.NewRequest(&bbsv1.GetDesiredLRPRequest{ProcessGuid: "q"}))
				sampletest.WantCode(t, err, connect.CodeNotFound)
				wantTold(t, err, "q: record not found")
				_, err = a.v1.UpdateDesiredLRP(ctx, connect.NewRequest(&bbsv1.UpdateDesiredLRPRequest{ProcessGuid: "q"}))
				wantTold(t, err, "q: record not found")
				_, err = a.v1.DeleteDesiredLRP(ctx, connect.NewRequest(&bbsv1.DeleteDesiredLRPRequest{ProcessGuid: "q"}))
				wantTold(t, err, "q: record not found")
			})
			t.Run("a bare process", func(t *testing.T) {
				t.Parallel()
				a, _ := stack(t)
				want := &bbsv1.DesiredLRP{ProcessGuid: "p", Domain: "d", Definition: &bbsv1.Definition{}}
				want.ModificationTag = createV1(t, a, want).GetModificationTag()
				if got := getV1(t, a, "p"); !proto.Equal(got, want) {
					t.Errorf("%v, want %v", got, want)
				}
			})
			t.Run("refused requests", func(t *testing.T) {
				t.Parallel()
				a, _ := stack(t)
				for label, change := range map[string]func(*bbsv1.DesiredLRP){
					"no guid": func(l *bbsv1.DesiredLRP) { l.ProcessGuid = "" }, "slash": func(l *bbsv1.DesiredLRP) { l.ProcessGuid = "a/b" },
					"no domain": func(l *bbsv1.DesiredLRP) { l.Domain = "" }, "negative": func(l *bbsv1.DesiredLRP) { l.Instances = -1 },
					"no definition": func(l *bbsv1.DesiredLRP) { l.Definition = nil },
				} {
					lrp := lrpV1("p", "cf")
					change(lrp)
					if _, err := a.v1.CreateDesiredLRP(ctx, connect.NewRequest(&bbsv1.CreateDesiredLRPRequest{DesiredLrp: lrp})); connect.CodeOf(err) != connect.CodeInvalidArgument {
						t.Errorf("%s: %v", label, err)
					}
				}
				_, err := a.v1.CreateDesiredLRP(ctx, connect.NewRequest(&bbsv1.CreateDesiredLRPRequest{}))
				sampletest.WantCode(t, err, connect.CodeInvalidArgument)
				_, err = a.v1.ListDesiredLRPs(ctx, connect.NewRequest(&bbsv1.ListDesiredLRPsRequest{PageSize: -1}))
				sampletest.WantCode(t, err, connect.CodeInvalidArgument)
			})
			t.Run("update", func(t *testing.T) {
				t.Parallel()
				a, _ := stack(t)
				want := createV1(t, a, lrpV1("p", "cf"))
				res, err := a.v1.UpdateDesiredLRP(ctx, connect.NewRequest(&bbsv1.UpdateDesiredLRPRequest{
					ProcessGuid: "p", Instances: proto.Int32(0), Routes: &bbsv1.Routes{}, ExpectedModificationTag: want.GetModificationTag(),
				}))
				if err != nil {
					t.Fatal(err)
				}
				stale := proto.CloneOf(want.GetModificationTag())
				want.Instances, want.Routes = 0, nil
				want.ModificationTag.Index = 1
				if !proto.Equal(res.Msg.GetDesiredLrp(), want) || !proto.Equal(getV1(t, a, "p"), want) {
					t.Errorf("%v\n%v, want\n%v", res.Msg.GetDesiredLrp(), getV1(t, a, "p"), want)
				}
				_, err = a.v1.UpdateDesiredLRP(ctx, connect.NewRequest(&bbsv1.UpdateDesiredLRPRequest{ProcessGuid: "p", Annotation: proto.String("x"), ExpectedModificationTag: stale}))
				sampletest.WantCode(t, err, connect.CodeAborted)
				if _, err = a.v1.UpdateDesiredLRP(ctx, connect.NewRequest(&bbsv1.UpdateDesiredLRPRequest{ProcessGuid: "p", Annotation: proto.String("")})); err != nil {
					t.Error(err)
				}
				if got := getV1(t, a, "p"); got.GetAnnotation() != "" || got.GetModificationTag().GetIndex() != 2 {
					t.Errorf("after a second update: %v", got)
				}
				_, err = a.v1.UpdateDesiredLRP(ctx, connect.NewRequest(&bbsv1.UpdateDesiredLRPRequest{ProcessGuid: "q"}))
				sampletest.WantCode(t, err, connect.CodeNotFound)
			})
			t.Run("delete", func(t *testing.T) {
				t.Parallel()
				a, s := stack(t)
				first := createV1(t, a, lrpV1("p", "cf"))
				createV1(t, a, lrpV1("p2", "cf"))
				if _, err := a.v1.DeleteDesiredLRP(ctx, connect.NewRequest(&bbsv1.DeleteDesiredLRPRequest{ProcessGuid: "p"})); err != nil {
					t.Fatal(err)
				}
				_, err := a.v1.GetDesiredLRP(ctx, connect.NewRequest(&bbsv1.GetDesiredLRPRequest{ProcessGuid: "p"}))
				sampletest.WantCode(t, err, connect.CodeNotFound)
				_, err = a.v1.DeleteDesiredLRP(ctx, connect.NewRequest(&bbsv1.DeleteDesiredLRPRequest{ProcessGuid: "p"}))
				sampletest.WantCode(t, err, connect.CodeNotFound)
				for _, kind := range slices.DeleteFunc(slices.Collect(maps.Keys(s.Tokens)), func(kind string) bool { return kind == KindActualLRPs || kind == KindCells || kind == KindTasks }) {
					if n := len(s.All(t, kind)); n != 1 {
						t.Errorf("%d records of %s are left, want that of p2", n, kind)
					}
				}
				again := createV1(t, a, lrpV1("p", "cf"))
				if again.GetModificationTag().GetEpoch() == first.GetModificationTag().GetEpoch() {
					t.Error("a process made anew has the old epoch")
				}
				_, err = a.v1.UpdateDesiredLRP(ctx, connect.NewRequest(&bbsv1.UpdateDesiredLRPRequest{ProcessGuid: "p", ExpectedModificationTag: first.GetModificationTag()}))
				sampletest.WantCode(t, err, connect.CodeAborted)
			})
			t.Run("list", func(t *testing.T) {
				t.Parallel()
				a, _ := stack(t)
				for i := range 7 {
					createV1(t, a, lrpV1(fmt.Sprintf("p%d", i), []string{"even", "odd"}[i%2]))
				}
				createV1(t, a, lrpV1("other", "even"))
				list := func(req *bbsv1.ListDesiredLRPsRequest) (guids []string) {
					for {
						res, err := a.v1.ListDesiredLRPs(ctx, connect.NewRequest(req))
						if err != nil {
							t.Fatal(err)
						}
						if n := len(res.Msg.GetDesiredLrps()); req.PageSize > 0 && n > int(req.PageSize) {
							t.Errorf("%d on a page of %d", n, req.PageSize)
						}
						for _, l := range res.Msg.GetDesiredLrps() {
							guids = append(guids, l.GetProcessGuid())
						}
						if req.PageToken = res.Msg.GetNextPageToken(); req.PageToken == "" {
							return guids
						}
					}
				}
				for _, tc := range []struct {
					req  *bbsv1.ListDesiredLRPsRequest
					want []string
				}{
					{&bbsv1.ListDesiredLRPsRequest{}, []string{"other", "p0", "p1", "p2", "p3", "p4", "p5", "p6"}},
					{&bbsv1.ListDesiredLRPsRequest{PageSize: 3}, []string{"other", "p0", "p1", "p2", "p3", "p4", "p5", "p6"}},
					{&bbsv1.ListDesiredLRPsRequest{Prefix: "p", PageSize: 2}, []string{"p0", "p1", "p2", "p3", "p4", "p5", "p6"}},
					{&bbsv1.ListDesiredLRPsRequest{Domain: "odd", PageSize: 1}, []string{"p1", "p3", "p5"}},
					{&bbsv1.ListDesiredLRPsRequest{Domain: "none"}, nil},
				} {
					if got := list(tc.req); !slices.Equal(got, tc.want) {
						t.Errorf("%v: %v, want %v", tc.req, got, tc.want)
					}
				}
			})
			t.Run("no update is lost", func(t *testing.T) {
				t.Parallel()
				a, _ := stack(t)
				createV1(t, a, lrpV1("p", "cf"))
				var done sync.WaitGroup
				var mu sync.Mutex
				acknowledged := uint32(0)
				for range 4 {
					done.Go(func() {
						for range 20 {
							_, err := a.v1.UpdateDesiredLRP(ctx, connect.NewRequest(&bbsv1.UpdateDesiredLRPRequest{ProcessGuid: "p", Instances: proto.Int32(1)}))
							if err == nil {
								mu.Lock()
								acknowledged++
								mu.Unlock()
							} else if connect.CodeOf(err) != connect.CodeAborted {
								t.Error(err)
							}
						}
					})
				}
				done.Wait()
				if got := getV1(t, a, "p").GetModificationTag().GetIndex(); got != acknowledged || got == 0 {
					t.Errorf("index %d after %d acknowledged updates", got, acknowledged)
				}
			})
			t.Run("unknown fields stay", func(t *testing.T) {
				t.Parallel()
				a, s := stack(t)
				createV1(t, a, lrpV1("p", "cf"))
				kind := KindDesiredLRPs
				if _, v2 := s.Tokens[KindDeployments]; v2 {
					kind = KindDeployments
				}
				rec, err := s.Get(ctx, kind, "p")
				if err != nil {
					t.Fatal(err)
				}
				var d bson.D
				if err := bson.Unmarshal(rec.Doc, &d); err != nil {
					t.Fatal(err)
				}
				s.Put(t, kind, append(d, bson.E{Key: "future", Value: "kept"}))
				if _, err := a.v1.UpdateDesiredLRP(ctx, connect.NewRequest(&bbsv1.UpdateDesiredLRPRequest{ProcessGuid: "p", Instances: proto.Int32(9)})); err != nil {
					t.Fatal(err)
				}
				if rec, err = s.Get(ctx, kind, "p"); err != nil || rec.Doc.Lookup("future").StringValue() != "kept" {
					t.Errorf("%s, %v", rec.Doc, err)
				}
			})
			t.Run("errors of the store", func(t *testing.T) {
				t.Parallel()
				a, s := stack(t)
				createV1(t, a, lrpV1("p", "cf"))
				for _, cause := range []error{record.ErrFenced, record.ErrUnknown} {
					s.BeforeWrite(func([]record.Mutation) error { return fmt.Errorf("write: %w", cause) })
					_, err := a.v1.UpdateDesiredLRP(ctx, connect.NewRequest(&bbsv1.UpdateDesiredLRPRequest{ProcessGuid: "p"}))
					sampletest.WantCode(t, err, connect.CodeUnavailable)
				}
			})
		})
	}
}

func TestRPCErrorKeepsItsCause(t *testing.T) {
	t.Parallel()
	for _, cause := range []error{record.ErrFenced, record.ErrUnknown, record.ErrNotFound, context.Canceled} {
		if err := apiversion.CodeError(fmt.Errorf("write: %w", cause)); !errors.Is(err, cause) {
			t.Errorf("%v hides %v", err, cause)
		}
	}
}

// TestV1UpdateOverV2KeepsTheRest: what v1 does not know of is neither lost nor written.
func TestV1UpdateOverV2KeepsTheRest(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	s := sampletest.New(t, KindDeployments, KindDefinitions)
	a := serve(t, StackV2(s))
	createV1(t, a, lrpV1("p", "cf"))
	if _, err := a.v2.AddDefinition(ctx, connect.NewRequest(&bbsv2.AddDefinitionRequest{ProcessGuid: "p", DefinitionId: "next", Definition: &bbsv2.Definition{Rootfs: "new", MemoryMb: 7}})); err != nil {
		t.Fatal(err)
	}
	if _, err := a.v2.ActivateDefinition(ctx, connect.NewRequest(&bbsv2.ActivateDefinitionRequest{ProcessGuid: "p", DefinitionId: "next"})); err != nil {
		t.Fatal(err)
	}
	if got := getV1(t, a, "p").GetDefinition(); got.GetRootfs() != "new" || got.GetMemoryMb() != 7 {
		t.Errorf("v1 sees %v, want the active definition", got)
	}
	before := len(s.Writes())
	if _, err := a.v1.UpdateDesiredLRP(ctx, connect.NewRequest(&bbsv1.UpdateDesiredLRPRequest{ProcessGuid: "p", Instances: proto.Int32(8)})); err != nil {
		t.Fatal(err)
	}
	if w := s.Writes()[before:]; len(w) != 1 || len(w[0]) != 1 || w[0][0].Kind != KindDeployments {
		t.Errorf("the update wrote %v", w)
	}
	got := getV2(t, a, "p")
	if got.GetInstances() != 8 || len(got.GetDefinitions()) != 2 || got.GetActiveDefinitionId() != "next" || got.GetHealthyDefinitionId() != "" {
		t.Errorf("v2 sees %v", got)
	}
	if _, err := a.v1.DeleteDesiredLRP(ctx, connect.NewRequest(&bbsv1.DeleteDesiredLRPRequest{ProcessGuid: "p"})); err != nil {
		t.Fatal(err)
	}
	if n := len(s.All(t, KindDefinitions)); n != 0 {
		t.Errorf("%d definitions are left", n)
	}
}
