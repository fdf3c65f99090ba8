package bbs_test

import (
	"context"
	"fmt"

	"connectrpc.com/connect"
	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/examples/bbs"
	bbsv1 "dbcontroller.dev/gen/bbs/v1"
	"dbcontroller.dev/gen/bbs/v1/bbsv1connect"
	bbsv2 "dbcontroller.dev/gen/bbs/v2"
	"dbcontroller.dev/gen/bbs/v2/bbsv2connect"
	"dbcontroller.dev/internal/base/inprocess"
	"dbcontroller.dev/internal/store/memstore"
	"dbcontroller.dev/record"
	"dbcontroller.dev/transform"
	"dbcontroller.dev/vrunner"
)

func ExampleRegister() {
	registry := transform.NewRegistry(bbs.Service)
	if err := bbs.Register(registry); err != nil {
		fmt.Println(err)
		return
	}
	up, err := registry.Direction(bbs.V1, bbs.V2)
	if err != nil {
		fmt.Println(err)
		return
	}
	doc, _ := bson.Marshal(bson.D{{Key: "_id", Value: "web"}, {Key: "instances", Value: 2}, {Key: "definition", Value: bson.D{{Key: "rootfs", Value: "jammy"}}}})
	key := record.StringKey("web")
	id, _, _ := up.GroupOf(bbs.KindDesiredLRPs, key)
	out, err := up.Transform(id, transform.Group{Name: id.Name, Records: []record.Record{{Kind: bbs.KindDesiredLRPs, Key: key, Doc: doc}}}, transform.Group{})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, r := range out {
		fmt.Println(r.Kind, r.Doc)
	}
	// Output:
	// definitions {"_id": "web/web","process_guid": "web","definition_id": "web","definition": {"rootfs": "jammy"}}
	// lrp_deployments {"_id": "web","instances": {"$numberInt":"2"},"active_definition_id": "web","healthy_definition_id": "","former_definition_ids": []}
}

// memory is a namespace in memory. In a server, vrunner.StoreOf(view) takes its place.
type memory struct {
	*memstore.Store
	tokens record.Tokens
}

func (m memory) Get(ctx context.Context, kind, key string) (record.Record, error) {
	return m.Store.Get(ctx, m.tokens[kind], record.StringKey(key))
}

func (m memory) List(ctx context.Context, kind, prefix, after string, limit int) ([]record.Record, error) {
	return m.Store.List(ctx, record.ListRequest{Token: m.tokens[kind], Prefix: prefix, After: after, Limit: limit})
}

func (m memory) Write(ctx context.Context, ms []record.Mutation) error {
	return m.Store.Write(ctx, m.tokens, ms)
}

func (memory) Changes(context.Context, ...string) (vrunner.Subscription, error) {
	return nil, fmt.Errorf("nobody watches")
}

// While v2 is active, both versions of the API read and write its data.
func ExampleStackV2() {
	ctx := context.Background()
	store := memory{memstore.New(), record.Tokens{}}
	for _, kind := range []string{bbs.KindDeployments, bbs.KindDefinitions} {
		token, err := store.Provision(ctx, record.KindSpec{Name: kind}, record.PhysicalName(kind, 1))
		if err != nil {
			fmt.Println(err)
			return
		}
		store.tokens[kind] = token
	}
	http := inprocess.Client(bbs.StackV2(store))
	v1 := bbsv1connect.NewDesiredLRPServiceClient(http, "http://bbs")
	v2 := bbsv2connect.NewLRPDeploymentServiceClient(http, "http://bbs")

	if _, err := v1.CreateDesiredLRP(ctx, connect.NewRequest(&bbsv1.CreateDesiredLRPRequest{DesiredLrp: &bbsv1.DesiredLRP{
		ProcessGuid: "web", Domain: "cf-apps", Instances: 2, Definition: &bbsv1.Definition{MemoryMb: 256},
	}})); err != nil {
		fmt.Println(err)
		return
	}
	if _, err := v2.AddDefinition(ctx, connect.NewRequest(&bbsv2.AddDefinitionRequest{
		ProcessGuid: "web", DefinitionId: "large", Definition: &bbsv2.Definition{MemoryMb: 1024},
	})); err != nil {
		fmt.Println(err)
		return
	}
	if _, err := v2.ActivateDefinition(ctx, connect.NewRequest(&bbsv2.ActivateDefinitionRequest{ProcessGuid: "web", DefinitionId: "large"})); err != nil {
		fmt.Println(err)
		return
	}
	res, err := v1.ListDesiredLRPs(ctx, connect.NewRequest(&bbsv1.ListDesiredLRPsRequest{Filter: `instances >= 2`}))
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, p := range res.Msg.GetDesiredLrps() {
		fmt.Println(p.GetProcessGuid(), p.GetDefinition().GetMemoryMb())
	}
	_, err = v1.ListDesiredLRPs(ctx, connect.NewRequest(&bbsv1.ListDesiredLRPsRequest{OrderBy: "definition.memory_mb"}))
	fmt.Println(err)
	// Output:
	// web 1024
	// invalid_argument: order_by: definition.memory_mb: a process has several definitions since v2: order by other fields
}
