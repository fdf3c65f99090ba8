package mongostore

import (
	"errors"
	"fmt"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"dbcontroller.dev/record"
)

// TestFullDisk: that the server has no room is no fault of the record, which is refused by nothing
// and goes through as it is once there is room.
func TestFullDisk(t *testing.T) {
	w := unreliable(t)
	tok := w.managed(t, record.Shape{})
	toks := record.Tokens{"things": tok}
	full := func(mode any) {
		t.Helper()
		err := w.raw.Client().Database("admin").RunCommand(t.Context(), bson.D{
			{Key: "configureFailPoint", Value: "failCommand"}, {Key: "mode", Value: mode},
			{Key: "data", Value: bson.D{
				{Key: "failCommands", Value: bson.A{"insert", "update", "delete", "bulkWrite", "findAndModify"}},
				{Key: "errorCode", Value: codeOutOfDiskSpace}, {Key: "appName", Value: "lossy"},
			}},
		}).Err()
		if err != nil {
			t.Fatal(err)
		}
	}
	for name, write := range map[string]func() ([]record.Result, error){
		"load": func() ([]record.Result, error) {
			return w.Load(t.Context(), record.Batch{Tokens: toks, Epoch: 1, Groups: []record.GroupWrite{group(1, put(t, "things", bson.D{{Key: "_id", Value: "loaded"}}))}})
		},
		"apply": func() ([]record.Result, error) {
			return w.Apply(t.Context(), record.Batch{Tokens: toks, Epoch: 1, Groups: []record.GroupWrite{
				group(1, put(t, "things", bson.D{{Key: "_id", Value: "one"}})), group(1, put(t, "things", bson.D{{Key: "_id", Value: "other"}})),
			}})
		},
		"client": func() ([]record.Result, error) {
			return nil, w.Client().Write(t.Context(), toks, []record.Mutation{creation("written", 1)})
		},
	} {
		full("alwaysOn")
		results, err := write()
		full("off")
		if server := mongo.ServerError(nil); !errors.As(err, &server) || !server.HasErrorCode(codeOutOfDiskSpace) || errors.Is(err, record.ErrRefused) ||
			errors.Is(err, record.ErrUnknown) || !IsUnavailable(err) {
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
	if got := len(w.docs(t, tok.Name)); got != 4+len("abc") {
		t.Errorf("there are %d records", got)
	}
	// As the answer for one of the documents that a command writes.
	if v, err := judge("load", mongo.WriteError{Code: codeOutOfDiskSpace}); v != failed || err == nil {
		t.Errorf("the document is judged as %d: %v", v, err)
	}
}

// TestFullDiskPasses: a server without room is one that can be used again once somebody has made
// some. A controller that starts meanwhile waits, and a client learns that the same may succeed.
func TestFullDiskPasses(t *testing.T) {
	t.Parallel()
	const said = "available disk space of 370827264 bytes is less than required minimum of 524288000"
	command := fmt.Errorf("check: %w", mongo.CommandError{Code: codeOutOfDiskSpace, Name: "OutOfDiskSpace", Message: said})
	if !unavailable(command) || !IsUnavailable(command) {
		t.Errorf("%v does not pass by itself", command)
	}
	written := refusalOf(statement{}, &mongo.WriteError{Code: codeOutOfDiskSpace, Message: said})
	if !errors.Is(written, record.ErrUnavailable) || errors.Is(written, record.ErrRefused) || !IsUnavailable(written) {
		t.Errorf("%v: unavailable %v, refused %v", written, errors.Is(written, record.ErrUnavailable), errors.Is(written, record.ErrRefused))
	}
}
