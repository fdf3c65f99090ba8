package record_test

import (
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"pgregory.net/rapid"

	"dbcontroller.dev/record"
)

func TestConceal(t *testing.T) {
	t.Parallel()
	doc, err := bson.Marshal(bson.D{{Key: "ssn", Value: "078-05-1120"}, {Key: "name", Value: "Ada King"}, {Key: "type", Value: "int"}, {Key: "in", Value: bson.A{bson.D{{Key: "city", Value: "Zürich"}}}}})
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]string{
		`Can't extract geo keys: { _id: "k", ssn: "078-05-1120", loc: { x: [ 1, 2 ] } }  lng: 200.5 lat: -3`: `Can't extract geo keys: …  lng: … lat: -…`,
		`convert size from int to long: size is {"$numberLong":"5"} (long)`:                                  `convert size from … to long: size is … (long)`,
		`convert point to integer: it's of type string`:                                                      `convert point to integer: it's of type string`,
		`no such person: Ada King of Zürich`:                                                                 `no such person: … of …`,
		`strconv.Atoi: parsing "078-05-1120": invalid syntax`:                                                `strconv.Atoi: parsing …: invalid syntax`,
		`parsing time 2024-05-06T07:08:09Z, field born`:                                                      `parsing time …, field born`,
		`field address2 of v1 has 'one' and "two`:                                                            `field address2 of v1 has … and …`,
		"path `a.b`": "path …",
		`names are regions/{r}/items/{i}, with "/" between`: `names are regions/{r}/items/{i}, with "/" between`,
		`orders/9/rating has another sub.list.0.n`:          `orders/9/rating has another sub.list.0.n`,
		`born 05/06/1907`: `born …`,
		``:                ``,
	} {
		if got := record.Conceal(text, doc); got != want {
			t.Errorf("%s\n got %s\nwant %s", text, got, want)
		}
	}
}

// TestConcealFindsTexts: whatever words stand around it, a text of the record goes.
func TestConcealFindsTexts(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		secret := rapid.StringMatching(`[a-zA-Z0-9äß ._@-]{1,10}CANARY[a-zA-Z0-9]{1,5}`).Draw(t, "secret")
		doc, err := bson.Marshal(bson.D{{Key: "list", Value: bson.A{1, bson.D{{Key: "f", Value: secret}}}}})
		if err != nil {
			t.Fatal(err)
		}
		around := rapid.StringMatching(`[ a-z:'"{}\[\]]{0,8}[ :]`)
		text := around.Draw(t, "before") + secret + strings.TrimSpace(around.Draw(t, "after")) + ","
		if got := record.Conceal(text, doc); strings.Contains(got, "CANARY") && !strings.Contains(text, secret+"a") {
			if after := text[strings.Index(text, secret)+len(secret):]; after == "" || !(after[0] >= 'a' && after[0] <= 'z') {
				t.Fatalf("%q became %q", text, got)
			}
		}
	})
}
