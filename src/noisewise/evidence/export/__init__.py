"""A model that predicts elsewhere, without noisewise: JSON, ONNX, or one Python file, its preparation and statement included."""
