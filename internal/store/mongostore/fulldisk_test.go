package mongostore_test

import (
	"errors"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"dbcontroller.dev/internal/store/mongostore/conn"
	"dbcontroller.dev/internal/store/mongostore/storetest"
	"dbcontroller.dev/record"
)

// TestFullDisk: that the server has no room is no fault of the record, which is refused by nothing
// and goes through as it is once there is room.
func TestFullDisk(t *testing.T) {
	w := storetest.Unreliable(t)
	tok := w.Managed(t, record.Shape{})
	toks := record.Tokens{"things": tok}
	full := func(mode any) {
		t.Helper()
		err := w.Raw.Client().Database("admin").RunCommand(t.Context(), bson.D{
			{Key: "configureFailPoint", Value: "failCommand"}, {Key: "mode", Value: mode},
			{Key: "data", Value: bson.D{
				{Key: "failCommands", Value: bson.A{"insert", "update", "delete", "bulkWrite", "findAndModify"}},
				{Key: "errorCode", Value: conn.CodeOutOfDiskSpace}, {Key: "appName", Value: "lossy"},
			}},
		}).Err()
		if err != nil {
			t.Fatal(err)
		}
	}
	for name, write := range map[string]func() ([]record.Result, error){
		"load": func() ([]record.Result, error) {
			return w.Load(t.Context(), record.Batch{Tokens: toks, Epoch: 1, Groups: []record.GroupWrite{storetest.Group(1, storetest.Put(t, "things", bson.D{{Key: "_id", Value: "loaded"}}))}})
		},
		"apply": func() ([]record.Result, error) {
			return w.Apply(t.Context(), record.Batch{Tokens: toks, Epoch: 1, Groups: []record.GroupWrite{
				storetest.Group(1, storetest.Put(t, "things", bson.D{{Key: "_id", Value: "one"}})), storetest.Group(1, storetest.Put(t, "things", bson.D{{Key: "_id", Value: "other"}})),
			}})
		},
		"client": func() ([]record.Result, error) {
			return nil, w.Client().Write(t.Context(), toks, []record.Mutation{storetest.Creation("written", 1)})
		},
	} {
		full("alwaysOn")
		results, err := write()
		full("off")
		if server := mongo.ServerError(nil); !errors.As(err, &server) || !server.HasErrorCode(conn.CodeOutOfDiskSpace) || errors.Is(err, record.ErrRefused) ||
			errors.Is(err, record.ErrUnknown) || !conn.IsUnavailable(err) {
			t.Errorf("%s: %v, %v: want the server's error, and that it passes", name, results, err)
		}
		if results, err = write(); err != nil {
			t.Errorf("%s, with room: %v", name, err)
		}
		for _, r := range results {
			if r.Outcome != record.Applied {
				t.Errorf("%s, with room: %+v", name, r)
			}
		}
	}
	if got := len(w.Docs(t, tok.Name)); got != 4+len("abc") {
		t.Errorf("there are %d records", got)
	}
}
