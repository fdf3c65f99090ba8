package login

import (
	"encoding/json"
	"strings"
	"testing"
)

// exported is the reply of MongoDB 8.2 to usersInfo with showCredentials, in extended JSON. The password is secret.
const exported = `{"users":[{"_id":"admin.other","user":"other","db":"admin","credentials":{}},
{"_id":"admin.app","userId":{"$binary":{"base64":"Bjf7JMB/S8Cg0upkvvR7sw==","subType":"04"}},"user":"app","db":"admin","credentials":{
"SCRAM-SHA-1":{"iterationCount":{"$numberInt":"10000"},"salt":"h7Q2NosbQDFaO25OKrDwlg==","storedKey":"TfuicG+0XOg0YbtaMbJtJCCT7Nw=","serverKey":"555gK9PL0kKv/Ri7U4Q007fiEko="},
"SCRAM-SHA-256":{"iterationCount":15000,"salt":"QCqsaCKs/UvMRW8OdixCFTbOp6a9P5ahIQ++iA==","storedKey":"EjG+oMYy+uv8Lxl8AfBYVngJTp2b1oKkxwOmAxnJ7WY=","serverKey":"jDENX/vaoEgZrxxEJZXs7xncsKqSwWzqmuo2Rm9YFPc="}},
"roles":[{"role":"readWrite","db":"shop"}],"mechanisms":["SCRAM-SHA-1","SCRAM-SHA-256"]}],"ok":1}`

// TestParse: MongoDB's own form is read, as a whole, as one user, and as credentials alone.
func TestParse(t *testing.T) {
	t.Parallel()
	var reply struct {
		Users []json.RawMessage `json:"users"`
	}
	if err := json.Unmarshal([]byte(exported), &reply); err != nil {
		t.Fatal(err)
	}
	var one struct {
		Credentials json.RawMessage `json:"credentials"`
	}
	if err := json.Unmarshal(reply.Users[1], &one); err != nil {
		t.Fatal(err)
	}
	for what, text := range map[string][]byte{"reply": []byte(exported), "user": reply.Users[1], "credentials": one.Credentials} {
		v, err := Parse(text, "admin", "app")
		if err != nil {
			t.Errorf("%s: %v", what, err)
			continue
		}
		if v[SHA1].Iters != 10_000 || v[SHA256].Iters != 15_000 || len(v[SHA256].StoredKey) != 32 || len(v[SHA1].Salt) != 16 {
			t.Errorf("%s: %+v", what, v)
		}
	}
}

// TestNew: what New writes is read again, and has the mechanisms that were asked for.
func TestNew(t *testing.T) {
	t.Parallel()
	for _, old := range []bool{false, true} {
		text, err := New("admin", "shop", "päss wörd", old)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(text), "wörd") {
			t.Error("the file has the password")
		}
		v, err := Parse(text, "admin", "shop")
		if err != nil {
			t.Fatal(err)
		}
		if _, has := v[SHA1]; has != old || len(v[SHA256].Salt) != 28 {
			t.Errorf("old %t: %v", old, v.names())
		}
	}
	for what, password := range map[string]string{"empty": "", "a control character": "a\x07b"} {
		if _, err := New("admin", "shop", password, true); err == nil || strings.ContainsRune(err.Error(), 7) || strings.Contains(err.Error(), "0007") {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// TestParseRefusals: each mistake is one line, and none quotes the file.
func TestParseRefusals(t *testing.T) {
	t.Parallel()
	good, err := New("admin", "shop", "secret", false)
	if err != nil {
		t.Fatal(err)
	}
	replace := func(from, to string) string {
		if !strings.Contains(string(good), from) {
			t.Fatalf("no %s in %s", from, good)
		}
		return strings.Replace(string(good), from, to, 1)
	}
	for _, tc := range []struct{ text, want string }{
		{"", "not JSON"},
		{"hunter2", "not JSON"},
		{"[]", "not JSON"},
		{"{}", "it has neither SCRAM-SHA-256 nor SCRAM-SHA-1"},
		{`{"users":"hunter2"}`, "neither credentials nor a user"},
		{`{"SCRAM-SHA-256":"hunter2"}`, "SCRAM-SHA-256: want iterationCount"},
		{`{"user":"shop","db":"admin","credentials":{"external":true}}`, "it has neither"},
		{replace(`"user": "shop"`, `"user": "bob"`), "it is the verifier of bob of database admin, want shop of admin"},
		{replace(`"db": "admin"`, `"db": "other"`), "it is the verifier of shop of database other"},
		{exported, "it has other users than shop of database admin"},
		{replace("15000", "4095"), "iterationCount is 4095, want 4096 to 1000000"},
		{replace("15000", "1000001"), "iterationCount is 1000001"},
		{replace("15000", "-1"), "iterationCount is -1"},
		{replace(`"salt": "`, `"salt": "hunter2?`), "salt: want 8 to 64 bytes"},
		{replace(`"storedKey": "`, `"storedKey": "aGk=`), "storedKey: want 32 to 32 bytes"},
		{replace(`"serverKey"`, `"key"`), "serverKey: want 32 to 32 bytes"},
	} {
		_, err := Parse([]byte(tc.text), "admin", "shop")
		if err == nil || !strings.Contains(err.Error(), tc.want) || strings.Contains(err.Error(), "\n") || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%.60s: %v, want %s", tc.text, err, tc.want)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(exported))
	f.Add([]byte(`{"SCRAM-SHA-1":{"iterationCount":10000,"salt":"h7Q2NosbQDFaO25OKrDwlg==","storedKey":"TfuicG+0XOg0YbtaMbJtJCCT7Nw=","serverKey":"555gK9PL0kKv/Ri7U4Q007fiEko="}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		v, err := Parse(text, "admin", "app")
		if err != nil {
			if strings.Contains(err.Error(), "\n") {
				t.Errorf("more than a line: %q", err)
			}
			return
		}
		for _, m := range mechanisms {
			c, ok := v[m.name]
			if ok && (c.Iters < fewestIterations || c.Iters > mostIterations || len(c.StoredKey) != m.size || len(c.ServerKey) != m.size || len(c.Salt) < shortestSalt) {
				t.Errorf("%+v", c)
			}
		}
	})
}
