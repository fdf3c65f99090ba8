package task

import (
	"bytes"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"google.golang.org/protobuf/types/known/timestamppb"
	"pgregory.net/rapid"

	"dbcontroller.dev/apiversion/protodoc"
	bbsv1 "dbcontroller.dev/gen/bbs/v1"
	bbsv2 "dbcontroller.dev/gen/bbs/v2"
	"dbcontroller.dev/record"
	"dbcontroller.dev/transform"
	"dbcontroller.dev/transform/lawtest"
)

// drawDoc draws a record: few names, so that both sides often mean the same task, some of the fields
// and some that nobody knows, in any order behind the _id.
func drawDoc(t *rapid.T, fields bson.D) []record.Record {
	guid := rapid.SampledFrom([]string{"a", "b"}).Draw(t, "guid")
	var d bson.D
	for _, e := range append(fields,
		bson.E{Key: "task_guid", Value: guid}, bson.E{Key: "revision", Value: rapid.Int64().Draw(t, "revision")},
		bson.E{Key: "domain", Value: "cf"}, bson.E{Key: "state", Value: rapid.SampledFrom([]string{"PENDING", "COMPLETED"}).Draw(t, "state")},
		bson.E{Key: "definition", Value: bson.D{{Key: "completion_callback_url", Value: "http://x"}, {Key: "future", Value: 1}}},
		bson.E{Key: "result", Value: rapid.String().Draw(t, "result")}, bson.E{Key: "callback_attempts", Value: int32(1)},
		bson.E{Key: "future", Value: bson.A{nil, 1, bson.D{{Key: "state", Value: "x"}}}},
	) {
		if rapid.IntRange(0, 4).Draw(t, "leave out "+e.Key) > 0 {
			d = append(d, e)
		}
	}
	raw, err := bson.Marshal(append(bson.D{{Key: "_id", Value: guid}}, rapid.Permutation(d).Draw(t, "order")...))
	if err != nil {
		t.Fatal(err)
	}
	return []record.Record{{Kind: Kind, Key: record.StringKey(guid), Doc: raw}}
}

// TestLaws: rejections are all that v1 cannot hold.
func TestLaws(t *testing.T) {
	t.Parallel()
	millis := rapid.Int64Range(-1e12, 1e13)
	old := rapid.Custom(func(t *rapid.T) []record.Record {
		return drawDoc(t, bson.D{{Key: "created_ms", Value: millis.Draw(t, "created")}, {Key: "updated_ms", Value: millis.Draw(t, "updated")}, {Key: "completed_ms", Value: millis.Draw(t, "completed")}})
	})
	now := rapid.Custom(func(t *rapid.T) []record.Record {
		return drawDoc(t, bson.D{
			{Key: "create_time", Value: bson.DateTime(millis.Draw(t, "created"))}, {Key: "update_time", Value: bson.DateTime(millis.Draw(t, "updated"))}, {Key: "complete_time", Value: bson.DateTime(millis.Draw(t, "completed"))},
			{Key: "rejection_count", Value: int32(rapid.IntRange(0, 9).Draw(t, "rejections"))}, {Key: "rejection_reason", Value: rapid.String().Draw(t, "reason")},
		})
	})
	lawtest.Check(t, lawtest.Case{Up: directions().keep, Down: directions().show, Old: old, New: now, LossyDown: true})
}

// TestMovedTask: what v1's API stores is what v2's API stores of the same task, byte for byte.
func TestMovedTask(t *testing.T) {
	t.Parallel()
	v1 := &bbsv1.Task{TaskGuid: "g", Revision: 7, Domain: "cf", State: "COMPLETED", CellId: "c", Result: "42", CreatedMs: 1_700_000_000_123, UpdatedMs: 1_700_000_001_000, CompletedMs: 1_700_000_001_000, CallbackAttempts: 2,
		Definition: &bbsv1.TaskDefinition{Rootfs: "r", Env: []*bbsv1.EnvVar{{Name: "A", Value: "b"}}, Action: &bbsv1.Action{Path: "/x"}, CompletionCallbackUrl: "https://x", Annotation: "a"}}
	v2 := &bbsv2.Task{TaskGuid: "g", Revision: 7, Domain: "cf", State: "COMPLETED", CellId: "c", Result: "42", CallbackAttempts: 2,
		CreateTime: timestamppb.New(timeOf(v1.CreatedMs)), UpdateTime: timestamppb.New(timeOf(v1.UpdatedMs)), CompleteTime: timestamppb.New(timeOf(v1.CompletedMs)),
		Definition: &bbsv2.TaskDefinition{Rootfs: "r", Env: []*bbsv2.EnvVar{{Name: "A", Value: "b"}}, Action: &bbsv2.Action{Path: "/x"}, CompletionCallbackUrl: "https://x", Annotation: "a"}}
	doc1, err := protodoc.MarshalID("g", v1)
	if err != nil {
		t.Fatal(err)
	}
	doc2, err := protodoc.MarshalID("g", v2)
	if err != nil {
		t.Fatal(err)
	}
	src := record.Record{Kind: Kind, Key: record.StringKey("g"), Doc: doc1}
	id, _, err := directions().keep.GroupOf(src.Kind, src.Key)
	if err != nil {
		t.Fatal(err)
	}
	moved, err := directions().keep.Transform(id, transform.Group{Name: id.Name, Records: []record.Record{src}}, transform.Group{Name: id.Name})
	if err != nil || len(moved) != 1 || !bytes.Equal(moved[0].Doc, doc2) {
		t.Errorf("moved %v, %v\nwant %s", moved, err, bson.Raw(doc2))
	}
	if getV2(v2) != getV1(v1) {
		t.Errorf("v2 is %v, v1 %v", getV2(v2), getV1(v1))
	}
}
