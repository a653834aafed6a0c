(* Loads the plugin that it is given, which does its work then. *)
let () =
  try Dynlink.loadfile Sys.argv.(1)
  with Dynlink.Error e -> prerr_endline (Dynlink.error_message e); exit 1
