package identity

import (
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/internal/store/sealed"
	"dbcontroller.dev/record"
)

// FuzzMark: what a login of the database writes as a mark is read, or is an error. A mark that can be
// read says the same when it is written again.
func FuzzMark(f *testing.F) {
	owner := record.Owner{Deployment: "services/a/deployments/b", Version: "v1"}
	for _, m := range []Mark{
		{Namespace: "n", Epoch: 2, Current: true, Next: &Next{ID: "u", Attempt: 1, Epoch: 3, To: "v2"}, State: `{"format":1,"name":"x"}`},
		{Namespace: "n", Keys: &sealed.State{Key: "a001", Under: map[string]string{"a001": "c"}, Seal: &sealed.Seal{Key: "a001", Sum: []byte{1}}}},
	} {
		stored, err := m.encode(owner)
		if err != nil {
			f.Fatal(err)
		}
		f.Add([]byte(stored.Body))
	}
	newer, err := bson.Marshal(bson.D{{Key: "format", Value: Format + 1}, {Key: "state", Value: "["}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(newer)
	// The field x in next is a string of a negative length.
	f.Add([]byte("\x26\x00\x00\x00\x03next\x00\x1b\x00\x00\x00\x02x\x00\xf9\xff\xff\xff/00000000000000\x00\x00"))
	f.Fuzz(func(t *testing.T, body []byte) {
		m, err := decodeMark(record.Mark{Owner: owner, Body: body})
		if err != nil {
			return
		}
		if m.Format > Format {
			t.Errorf("format %d is read", m.Format)
		}
		_, _ = m.Deployment()
		s := stateOf(&m)
		if s.New {
			t.Error("a namespace with a mark is taken for one that is not begun")
		}
		stored, err := m.encode(owner)
		if err != nil {
			return // such as a text that is no UTF-8
		}
		again, err := decodeMark(stored)
		if err != nil || again.Namespace != m.Namespace || again.Epoch != m.Epoch || again.Current != m.Current || again.State != m.State || (again.Keys == nil) != (m.Keys == nil) {
			t.Errorf("%+v is read again as %+v: %v", m, again, err)
		}
	})
}
