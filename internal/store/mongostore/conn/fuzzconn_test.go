package conn

import (
	"fmt"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/internal/base/rawdoc"
	"dbcontroller.dev/internal/store/mongostore/wire"
)

// FuzzToken: the time in a resume token is read as the server wrote it, or is unknown.
func FuzzToken(f *testing.F) {
	for _, data := range []any{"8200000005000000012B042C0100296E5A1004", "82000000050000000", "82zz00000500000001", "00", 5, ""} {
		f.Add([]byte(wire.MustMarshal(bson.D{{Key: "_data", Value: data}})))
	}
	f.Add([]byte{1})
	f.Fuzz(func(t *testing.T, token []byte) {
		at, ok := TokenTime(token)
		if !ok {
			if at != (bson.Timestamp{}) {
				t.Errorf("no time, and %v", at)
			}
			return
		}
		data := bson.Raw(token).Lookup("_data").StringValue()
		if want := fmt.Sprintf("%s%08x%08x", timestampType, at.T, at.I); !strings.HasPrefix(strings.ToLower(data), want) {
			t.Errorf("%q is read as %v", data, at)
		}
	})
}

// FuzzDetails: the explanation of a refused document names fields, and none of its values.
func FuzzDetails(f *testing.F) {
	missing := func(names bson.A) bson.D {
		return bson.D{{Key: "operatorName", Value: "$jsonSchema"}, {Key: "schemaRulesNotSatisfied", Value: bson.A{
			bson.D{{Key: "operatorName", Value: "required"}, {Key: "missingProperties", Value: names}},
			bson.D{{Key: "operatorName", Value: "properties"}, {Key: "propertiesNotSatisfied", Value: bson.A{bson.D{
				{Key: "propertyName", Value: "size"}, {Key: "details", Value: bson.A{bson.D{
					{Key: "operatorName", Value: "bsonType"}, {Key: "consideredValue", Value: "secret"}, {Key: "specifiedAs", Value: bson.D{{Key: "bsonType", Value: "int"}}},
				}}},
			}}}},
		}}}
	}
	f.Add([]byte(wire.MustMarshal(missing(bson.A{"name", "at"}))))
	f.Add([]byte(wire.MustMarshal(missing(bson.A{"name", 5, nil, bson.D{}}))))
	f.Add([]byte{9, 0, 0, 0, 2})
	// The driver reads the array in it, and cannot write it.
	f.Add([]byte("&\x00\x00\x00\x040000000\x00h\x00\x00\x00\x030\x00`\x00\x00\x00\x02000000000000\x00%\x00\x00\x000000000000000000000000000000000000000\x0300000000000\x00\x17\x00\x00\x00\x0200000000\x00\x04\x00\x00\x000000\x00\x00\x00\x00"))
	f.Fuzz(func(t *testing.T, details []byte) {
		fields := unfit(details, "", 0)
		if len(fields) > 20 {
			t.Errorf("%d fields", len(fields))
		}
		for _, field := range fields {
			if !strings.HasSuffix(field, " is missing") && !strings.HasSuffix(field, ")") {
				t.Errorf("field %q", field)
			}
		}
		if rawdoc.Validate(details) != nil {
			return
		}
		// An element that quotes the document changes nothing.
		quoted, err := bson.Marshal(bson.D{{Key: "consideredValue", Value: bson.Raw(details)}, {Key: "consideredValues", Value: bson.A{bson.Raw(details)}}})
		if err != nil {
			return // the driver writes fewer documents than it reads
		}
		if fields := unfit(quoted, "p", 0); len(fields) > 0 {
			t.Errorf("%s shows %q", bson.Raw(quoted), fields)
		}
	})
}
