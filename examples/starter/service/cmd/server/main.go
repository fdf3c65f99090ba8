// Command server serves v1 and v2 of the tasks over the data of the active version.
package main

import (
	"dbcontroller.dev"
	"dbcontroller.dev/examples/starter/service/tasks"
)

func main() { dbcontroller.Serve(tasks.Service()) }
