package config_test

import (
	"fmt"

	"dbcontroller.dev/config"
)

func Example() {
	c, err := config.Parse("bbs.yaml", []byte(`
deployment: services/bbs/deployments/us-west2
dbs:
- namespace: envs/$(ENV)/bbs/v1
  backend: mongo
  apiVersion: v1
  mongo: {endpoint: "$(MONGO_URI)"}
`), func(name string) (string, bool) {
		v, ok := map[string]string{"ENV": "dev", "MONGO_URI": "mongodb://me:secret@localhost"}[name]
		return v, ok
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	db, _ := c.DB("v1")
	fmt.Println(db.Namespace, "is", db.Database)
	fmt.Println("at", db.Endpoint)
	// Output:
	// envs/dev/bbs/v1 is dbc_envs_dev_bbs_v1_acb7dced3e29ed42
	// at mongodb://***@localhost
}
