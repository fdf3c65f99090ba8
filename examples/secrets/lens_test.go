package secrets_test

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"pgregory.net/rapid"

	"dbcontroller.dev/examples/secrets"
	"dbcontroller.dev/record"
	"dbcontroller.dev/transform"
	"dbcontroller.dev/transform/lawtest"
)

func directions(t testing.TB) (up, down transform.Direction) {
	t.Helper()
	r := transform.NewRegistry("secrets.example.com")
	if err := r.Add(secrets.V1, secrets.V2, secrets.Specs()...); err != nil {
		t.Fatal(err)
	}
	up, err := r.Direction(secrets.V1, secrets.V2)
	if err != nil {
		t.Fatal(err)
	}
	if down, err = r.Direction(secrets.V2, secrets.V1); err != nil {
		t.Fatal(err)
	}
	return up, down
}

func rec(t interface{ Fatal(...any) }, d bson.D) record.Record {
	raw, err := bson.Marshal(d)
	if err != nil {
		t.Fatal(err)
	}
	key, err := record.KeyOfDoc(raw)
	if err != nil {
		t.Fatal(err)
	}
	return record.Record{Kind: secrets.Kind, Key: key, Doc: raw}
}

// drawDoc draws a record: a name and some of the fields, some that nobody knows, in any
// order behind the _id. Few names, so that both sides often mean the same secret.
func drawDoc(t *rapid.T, prefix string, fields bson.D) []record.Record {
	name := prefix + rapid.SampledFrom([]string{"a", "b"}).Draw(t, "id")
	d := bson.D{{Key: "name", Value: name}, {Key: "revision", Value: rapid.Int64().Draw(t, "revision")}}
	for _, e := range append(fields,
		bson.E{Key: "payload", Value: bson.Binary{Data: rapid.SliceOfN(rapid.Byte(), 0, 3).Draw(t, "payload")}},
		bson.E{Key: "labels", Value: bson.D{{Key: "env", Value: rapid.String().Draw(t, "label")}}},
		bson.E{Key: "replaces", Value: prefix + "z"},
		bson.E{Key: "future", Value: bson.A{nil, 1, bson.D{{Key: "owner", Value: "x"}}}},
	) {
		if rapid.IntRange(0, 4).Draw(t, "leave out "+e.Key) > 0 {
			d = append(d, e)
		}
	}
	return []record.Record{rec(t, append(bson.D{{Key: "_id", Value: name}}, rapid.Permutation(d).Draw(t, "order")...))}
}

func oldSecrets() *rapid.Generator[[]record.Record] {
	return rapid.Custom(func(t *rapid.T) []record.Record {
		return drawDoc(t, "projects/p/secrets/", bson.D{
			{Key: "expires_at", Value: rapid.Int64Range(-1e12, 1e12).Draw(t, "expires_at")},
			{Key: "owner", Value: rapid.StringMatching(`[a-z]{0,3}/[a-z]{0,3}`).Draw(t, "owner")},
		})
	})
}

func newSecrets() *rapid.Generator[[]record.Record] {
	return rapid.Custom(func(t *rapid.T) []record.Record {
		fields := bson.D{
			{Key: "expire_time", Value: bson.DateTime(rapid.Int64Range(-1e12, 1e12).Draw(t, "expire_time") * 1000)},
			{Key: "rotation_days", Value: int32(rapid.IntRange(0, 99).Draw(t, "rotation_days"))},
		}
		recs := drawDoc(t, "projects/p/regions/us-west2/secrets/", fields)
		if rapid.Bool().Draw(t, "with an owner") {
			// Both parts or none: half an owner is no record that the service writes.
			var d bson.D
			if err := bson.Unmarshal(recs[0].Doc, &d); err != nil {
				t.Fatal(err)
			}
			part := rapid.StringMatching(`[a-z]{0,3}`)
			return []record.Record{rec(t, append(d, bson.E{Key: "owner_team", Value: part.Draw(t, "team")}, bson.E{Key: "owner_person", Value: part.Draw(t, "person")}))}
		}
		return recs
	})
}

// TestLaws: rotation_days is all that v1 cannot hold.
func TestLaws(t *testing.T) {
	t.Parallel()
	up, down := directions(t)
	lawtest.Check(t, lawtest.Case{Up: up, Down: down, Old: oldSecrets(), New: newSecrets(), LossyDown: true})
}

func transformed(t testing.TB, d transform.Direction, src record.Record, have []record.Record) ([]record.Record, error) {
	t.Helper()
	id, ok, err := d.GroupOf(src.Kind, src.Key)
	if err != nil || !ok {
		return nil, err
	}
	return d.Transform(id, transform.Group{Name: id.Name, Records: []record.Record{src}}, transform.Group{Name: id.Name, Records: have})
}

func TestLensOnOneRecord(t *testing.T) {
	t.Parallel()
	up, down := directions(t)
	old := rec(t, bson.D{
		{Key: "_id", Value: "projects/p/secrets/s"}, {Key: "name", Value: "projects/p/secrets/s"}, {Key: "expires_at", Value: int64(1800000000)},
		{Key: "owner", Value: "payments/ada"}, {Key: "replaces", Value: "projects/q/secrets/r"}, {Key: "revision", Value: int64(7)},
	})
	want := rec(t, bson.D{
		{Key: "_id", Value: "projects/p/regions/us-west2/secrets/s"}, {Key: "name", Value: "projects/p/regions/us-west2/secrets/s"},
		{Key: "expire_time", Value: time.Unix(1800000000, 0)}, {Key: "replaces", Value: "projects/q/regions/us-west2/secrets/r"}, {Key: "revision", Value: int64(7)},
		{Key: "owner_team", Value: "payments"}, {Key: "owner_person", Value: "ada"}, {Key: "rotation_days", Value: int32(0)},
	})
	got, err := transformed(t, up, old, nil)
	if err != nil || len(got) != 1 || got[0].Key != want.Key || !bytes.Equal(got[0].Doc, want.Doc) {
		t.Fatalf("%v %v\nwant %v", got, err, want.Doc)
	}
	// What v2 set stays when v1's record comes again.
	var d bson.D
	if err := bson.Unmarshal(want.Doc, &d); err != nil {
		t.Fatal(err)
	}
	d[len(d)-1].Value = int32(30)
	rotated := rec(t, d)
	if got, err = transformed(t, up, old, []record.Record{rotated}); err != nil || !bytes.Equal(got[0].Doc, rotated.Doc) {
		t.Errorf("over what v2 holds: %v %v", got, err)
	}
	back, err := transformed(t, down, rotated, nil)
	if err != nil || len(back) != 1 || back[0].Key != old.Key {
		t.Errorf("came back as %v %v", back, err)
	}
}

// TestParked: what v1 cannot show is an error that says why, and not left out.
func TestParked(t *testing.T) {
	t.Parallel()
	up, down := directions(t)
	v1, v2 := "projects/p/secrets/s", "projects/p/regions/us-west2/secrets/s"
	for _, tc := range []struct {
		name, want string
		d          transform.Direction
		doc        bson.D
	}{
		{"another region", "us-west2", down, bson.D{{Key: "_id", Value: "projects/p/regions/eu/secrets/s"}, {Key: "name", Value: "projects/p/regions/eu/secrets/s"}}},
		{"replaces another region's", "replaces", down, bson.D{{Key: "_id", Value: v2}, {Key: "replaces", Value: "projects/p/regions/eu/secrets/s"}}},
		{"a fraction of a second", "expire_time", down, bson.D{{Key: "_id", Value: v2}, {Key: "expire_time", Value: bson.DateTime(250)}}},
		{"half an owner", "owner", down, bson.D{{Key: "_id", Value: v2}, {Key: "owner_team", Value: "payments"}}},
		{"slash in an owner", "owner_team", down, bson.D{{Key: "_id", Value: v2}, {Key: "owner_team", Value: "a/b"}, {Key: "owner_person", Value: "c"}}},
		{"owner without slash", "owner", up, bson.D{{Key: "_id", Value: v1}, {Key: "owner", Value: "ada"}}},
		{"expiry a string", "expire", up, bson.D{{Key: "_id", Value: v1}, {Key: "expires_at", Value: "soon"}}},
		{"key of another form", "projects", up, bson.D{{Key: "_id", Value: "s"}}},
		{"v2's field", "rotation_days", up, bson.D{{Key: "_id", Value: v1}, {Key: "rotation_days", Value: 1}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			out, err := transformed(t, tc.d, rec(t, tc.doc), nil)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%v, error %v, want one about %s", out, err, tc.want)
			}
		})
	}
}
